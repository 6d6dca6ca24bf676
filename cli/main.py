"""The process `cmfl`: everything else is imported inside the guard that `run` puts up first.

Not even `typing` comes before it: that alone takes longer than all that Python does until here.
"""

from __future__ import annotations

import os
import signal
import sys

from cli.codes import INTERRUPTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

    from clients.worker.behaviour import Behaviour

_IMPORTING = "<frozen importlib._bootstrap>"
_SHOW_CURSOR = "\x1b[?25h"


def run(behaviour: Behaviour | None = None) -> NoReturn:
    """Run the command line and end the process with its exit code.

    Args:
        behaviour: how the clients of `cmfl worker` act; None for honestly.
    """
    code = INTERRUPTED
    try:
        signal.signal(signal.SIGINT, _interrupt)
        from cli import streams

        streams.take_over()
        from cli.application import main

        code = main(behaviour)
    except KeyboardInterrupt:
        _end_at_once()
    # What Python does from here on is its own: another Ctrl-C ends it without a word.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(code)


def _interrupt(_: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, but end at once where a module is being imported.

    Libraries turn an import that is cut off into errors of their own, and nothing that counts is
    lost: a run survives being killed at any moment.
    """
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            _end_at_once()
        frame = frame.f_back
    raise KeyboardInterrupt


def _end_at_once() -> NoReturn:
    try:
        shown = _SHOW_CURSOR if os.isatty(2) else ""
        os.write(2, f"{shown}cmfl: interrupted\n".encode())
    finally:
        os._exit(INTERRUPTED)


if __name__ == "__main__":
    run()
