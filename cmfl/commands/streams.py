"""Standard output and standard error that never make a command fail.

A command's result is its exit code. It is kept when the reader closes the pipe (`cmfl audit | head
-1`), when there is no standard output, and when a terminal cannot show a character.

Standard output has the results of commands alone. Whatever else is printed while a command runs, by
a user's model or by a library, in Python or in C, goes to standard error.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TextIO

from ledger.io.home import move_standard_output

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Unfailing(io.FileIO):
    """A file that discards what cannot be written.

    Attributes:
        failure: the error, unless the reader has closed the pipe.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.failure: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        """Write the data, or discard them."""
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
    """Replace Python's standard streams by streams that never fail.

    Descriptor 1 becomes standard error; results go to a descriptor of their own.
    """
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
    return io.TextIOWrapper(
        io.BufferedWriter(_Unfailing(descriptor)),
        encoding=_encoding_of(stream),
        errors="backslashreplace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _encoding_of(stream: TextIO) -> str:
    """Return a stream's encoding; ASCII for a terminal with the C locale.

    Python uses UTF-8 there, and may have set LC_CTYPE itself.
    """
    locales = (os.environ.get(name) for name in ("LC_ALL", "LANG"))
    is_plain = next((value for value in locales if value), "") in {"C", "POSIX"}
    is_explicit = any(os.environ.get(name) for name in ("PYTHONIOENCODING", "PYTHONUTF8"))
    return "ascii" if is_plain and not is_explicit and stream.isatty() else stream.encoding


def _null(mode: Literal["r", "w"]) -> TextIO:
    return io.TextIOWrapper(io.FileIO(os.devnull, mode), encoding="utf-8")


def unprinted() -> OSError | None:
    """Return the error that prevented output on standard output; None if there was none."""
    results().flush()
    raw = getattr(getattr(results(), "buffer", None), "raw", None)
    return raw.failure if isinstance(raw, _Unfailing) else None
