"""Standard output and standard error that never make a command fail.

A command's result is its exit code. It is kept when the reader closes the pipe (`cmfl audit | head
-1`), when there is no standard output, and when a terminal cannot show a character.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from typing import TextIO

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


def take_over() -> None:
    """Replace Python's standard streams by streams that never fail."""
    # In this order, so that a missing stream takes its own descriptor.
    sys.stdin = sys.stdin or _null("r")
    sys.stdout = _taken_over(sys.stdout)
    sys.stderr = _taken_over(sys.stderr)


def _taken_over(stream: TextIO | None) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):
        return _null("w")
    return io.TextIOWrapper(
        io.BufferedWriter(_Unfailing(stream.fileno())),
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
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.failure if isinstance(raw, _Unfailing) else None
