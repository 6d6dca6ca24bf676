"""A command as a process: the signals that end it, its memory, and its standard streams.

Ctrl-C, TERM and HUP each raise KeyboardInterrupt. Memory is checked before large libraries are
loaded. With too little memory OpenBLAS exits with code 1 while numpy is imported, a false verdict.
If it cannot start a thread, it exits with SIGINT, a false Ctrl-C.

The standard streams never make a command fail: not if the reader closes the pipe (`cmfl audit |
head -1`), there is no standard output, or a terminal cannot show a character. Standard output has
the results of commands alone. The output of a user's model or a library goes to standard error.

This module is imported before the signals are handled, and so imports nothing that takes time.
"""

from __future__ import annotations

import io
import mmap
import os
import resource
import signal
import sys
from contextlib import contextmanager, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType
    from typing import Any, Literal, TextIO

    from _typeshed import ReadableBuffer

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_last = signal.SIGINT


def interrupted_code() -> int:
    """Return the exit code of a command that a signal ended, as shells have it."""
    return 128 + _last


def handle_with(handler: Callable[[int, FrameType | None], object]) -> dict[int, Any]:
    """Set the handler of all end signals, but of an ignored HUP (nohup); return those before."""

    def handle(number: int, frame: FrameType | None) -> object:
        global _last  # noqa: PLW0603 - a process has one end
        _last = signal.Signals(number)
        return handler(number, frame)

    return {
        number: signal.signal(number, handle)
        for number in END_SIGNALS
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
    }


@contextmanager
def handled_with(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Set the handler of all signals that end a command within a context."""
    global _last  # noqa: PLW0603 - see `handle_with`
    before = handle_with(handler)
    try:
        yield
    finally:
        _last = signal.SIGINT  # this context was the answer to the signal
        for number, earlier in before.items():
            signal.signal(number, earlier)


def leave_to_parent() -> None:
    """Let the copies of this process that are forked from now on end by TERM and HUP at once."""

    def reset() -> None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)

    os.register_at_fork(after_in_child=reset)


@contextmanager
def until_interrupted() -> Iterator[None]:
    """End the context cleanly on Ctrl-C, TERM and HUP, also where a module is being imported."""
    with suppress(KeyboardInterrupt), handled_with(signal.default_int_handler):
        yield


LEAST_BYTES = 256 * 2**20  # of address space, that the libraries need
AMPLE_BYTES = 8 * 2**30  # with room for the stack and buffer of one thread per core


def allowed_bytes() -> int | None:
    """Return the limit of this process's address space; None for no limit."""
    limits = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    return min((limit for limit in limits if limit != resource.RLIM_INFINITY), default=None)


def require_memory() -> None:
    """Require the address space that the libraries need; a MemoryError names its amount."""
    try:  # also fails if the system has promised its memory to others
        mmap.mmap(-1, LEAST_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError as error:
        raise MemoryError(f"it takes {LEAST_BYTES // 2**20} MiB more to begin") from error
    allowed = allowed_bytes()
    if allowed is not None and allowed < AMPLE_BYTES:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def too_little_memory(error: MemoryError | ImportError) -> str:
    """Return the message for a lack of memory."""
    parts = ["not enough memory", limit_in_words(), str(error)]
    return ": ".join(part for part in parts if part)


def limit_in_words() -> str:
    """Return a description of the address space limit; empty without one."""
    allowed = allowed_bytes()
    return "" if allowed is None else f"this process may use {allowed // 2**20} MiB (ulimit -v)"


class _Unfailing(io.FileIO):
    """A file that discards what cannot be written; `failure` says why, but of a closed pipe."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.failure: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            pass
        except OSError as error:
            self.failure = error
        return memoryview(data).nbytes


_RESULTS: list[TextIO] = []
"""The stream of results, once `take_over` has moved it away from descriptor 1."""


def take_over() -> None:
    """Replace the standard streams by unfailing ones; descriptor 1 becomes standard error."""
    from ledger.io.home import move_standard_output

    # In this order, so that a missing stream takes its own descriptor.
    sys.stdin = sys.stdin or _null("r")
    output, sys.stderr = sys.stdout or _null("w"), _taken_over(sys.stderr or _null("w"), 2)
    sys.stdout = output
    if isinstance(output, io.TextIOWrapper):
        output.flush()
        descriptor = os.dup(1)
        sys.stdout = _taken_over(output, descriptor)
        os.dup2(2, 1)
        move_standard_output(descriptor)
        _RESULTS[:] = [sys.stdout]


def results() -> TextIO:
    """Return the stream of a command's results."""
    return _RESULTS[0] if _RESULTS else sys.stdout


def print_versions() -> None:
    """Print the versions that two installations need in common."""
    import json
    from importlib.metadata import version
    from pathlib import Path

    import contracts
    from ledger.protocol.types import PROTOCOL_VERSION

    artefact = Path(contracts.__path__[0], "artifacts", "committee_ledger.json")
    compiler = json.loads(artefact.read_bytes())["compiler"]
    results().write(
        f"cmfl {version('cmfl-ledger')}\nprotocol {PROTOCOL_VERSION}\n"
        f"contract compiler {compiler}\n"
    )


@contextmanager
def others_on_standard_error() -> Iterator[None]:
    """Let `print` of code that is not this program's write to standard error."""
    if not _RESULTS:
        yield
        return
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        sys.stdout = _RESULTS[0]


def _taken_over(stream: TextIO, descriptor: int) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):
        return _null("w")
    # For a terminal with the C locale Python uses UTF-8, and may have set LC_CTYPE itself.
    locales = (os.environ.get(name) for name in ("LC_ALL", "LANG"))
    is_plain = next((value for value in locales if value), "") in {"C", "POSIX"}
    is_explicit = any(os.environ.get(name) for name in ("PYTHONIOENCODING", "PYTHONUTF8"))
    return io.TextIOWrapper(
        io.BufferedWriter(_Unfailing(descriptor)),
        encoding="ascii" if is_plain and not is_explicit and stream.isatty() else stream.encoding,
        errors="backslashreplace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _null(mode: Literal["r", "w"]) -> TextIO:
    return io.TextIOWrapper(io.FileIO(os.devnull, mode), encoding="utf-8")


def unprinted() -> OSError | None:
    """Return the error that prevented output on standard output; None if there was none."""
    results().flush()
    raw = getattr(getattr(results(), "buffer", None), "raw", None)
    return raw.failure if isinstance(raw, _Unfailing) else None
