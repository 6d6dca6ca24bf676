"""Standard output and standard error of the process, which no command fails for.

What a command came to is its exit code. It stands when nobody reads to the end (`cmfl audit |
head -1`), when there is no standard output, and when a terminal cannot show a character.
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
    """A file that loses what cannot be written.

    Attributes:
        failure: why, unless it was that nobody reads any more.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.failure: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        """Write, or lose what is to be written.

        Args:
            data: the bytes.
        """
        try:
            return super().write(data)
        except BrokenPipeError:
            pass
        except OSError as error:
            self.failure = error
        return memoryview(data).nbytes


def take_over() -> None:
    """Put streams that do not fail in the place of those that Python made."""
    # In this order a missing one takes its own descriptor, which no other file gets then.
    sys.stdin = sys.stdin or _nothing("r")
    sys.stdout = _taken_over(sys.stdout)
    sys.stderr = _taken_over(sys.stderr)


def _taken_over(stream: TextIO | None) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):
        return _nothing("w")
    return io.TextIOWrapper(
        io.BufferedWriter(_Unfailing(stream.fileno())),
        encoding=_encoding_of(stream),
        errors="backslashreplace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _encoding_of(stream: TextIO) -> str:
    """Return what a stream takes; a terminal of the C locale has only ASCII.

    Python takes UTF-8 there, and may have set LC_CTYPE itself, before anybody is asked.
    """
    said = (os.environ.get(name) for name in ("LC_ALL", "LANG"))
    is_plain = next((value for value in said if value), "") in {"C", "POSIX"}
    is_told = any(os.environ.get(name) for name in ("PYTHONIOENCODING", "PYTHONUTF8"))
    return "ascii" if is_plain and not is_told and stream.isatty() else stream.encoding


def _nothing(mode: Literal["r", "w"]) -> TextIO:
    return io.TextIOWrapper(io.FileIO(os.devnull, mode), encoding="utf-8")


def unprinted() -> OSError | None:
    """Return why not everything could be printed on standard output, None if all could be."""
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.failure if isinstance(raw, _Unfailing) else None
