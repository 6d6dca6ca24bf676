"""The process `cmfl`: everything else is imported under the guard that `run` installs first.

Exit code 1 is a verdict, so no other failure may use it: an unhandled error, such as an import
without memory or file descriptors, gives one message and another code. Not even `typing` is
imported before the guard: it alone takes longer than everything that Python does until here.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys

from cmfl.commands import FAULT, WRONG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

    from clients.worker.worker import WorkerBehaviour

_IMPORTING = "<frozen importlib._bootstrap>"

# What is imported stays: to look through it for garbage takes a fifth of a short command.
gc.set_threshold(50_000, 20, 50)
atexit.register(gc.freeze)


def run(behaviour: WorkerBehaviour | None = None) -> NoReturn:
    """Run the command line and exit; `behaviour` is of the clients of `cmfl worker`, or honest."""
    if os.name == "nt":  # file locks, resource limits and signals are POSIX's
        _end(WRONG, "Windows is not supported; use the Windows Subsystem for Linux")
    code = 0
    try:
        import signal

        from cmfl.commands import process

        process.leave_to_parent()
        handled = process.handle_with(_interrupt)
        process.require_memory()
        process.take_over()
        if sys.argv[1:] == ["--version"]:  # at once: the libraries of commands take longer
            process.print_versions()
        if sys.argv[1:] != ["--version"] or process.unprinted():
            from cmfl.commands.application import main

            code = main(behaviour)
        # What Python does from here on is its own: another Ctrl-C ends it without a word.
        for number in handled:
            signal.signal(number, signal.SIG_DFL)
    except KeyboardInterrupt:
        _end_at_once()
    except Exception as error:  # noqa: BLE001 - Python would end with 1, which is a verdict
        _end_for(error)
    sys.exit(code)


def _interrupt(_: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, but end at once in an import: libraries would change the error."""
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            _end_at_once()
        frame = frame.f_back
    raise KeyboardInterrupt


def _end_at_once() -> NoReturn:
    from cmfl.commands.process import interrupted_code

    try:
        shown = "\x1b[?25h" if os.isatty(2) else ""
        os.write(2, f"{shown}cmfl: interrupted\n".encode())
    finally:
        os._exit(interrupted_code())


def _end_for(error: Exception) -> NoReturn:
    """End with a sentence on an error before the command: of the machine, or a fault of ours."""
    if isinstance(error, ModuleNotFoundError):
        from ledger.io.extras import missing_extra

        if extra := missing_extra(error):
            _end(WRONG, extra)
    if isinstance(error, MemoryError):
        try:
            from cmfl.commands.process import too_little_memory
        except (MemoryError, ImportError, OSError):
            _end(WRONG, "not enough memory")
        _end(WRONG, too_little_memory(error))
    if isinstance(error, OSError):
        _end(WRONG, f"cannot start: {error}")
    _end(FAULT, f"cannot start: {type(error).__name__}: {error}")


def _end(code: int, sentence: str) -> NoReturn:
    try:
        line = " ".join(sentence.split())[:500]
        os.write(2, f"cmfl: {line}\n".encode(errors="backslashreplace"))
    finally:
        os._exit(code)
