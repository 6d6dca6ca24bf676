"""The signals that end a command: Ctrl-C, TERM and HUP. Each of them raises KeyboardInterrupt."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType
    from typing import Any

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_last = signal.SIGINT


def interrupted_code() -> int:
    """Return the exit code of a command that a signal ended, as shells have it."""
    return 128 + _last


def handle_with(handler: Callable[[int, FrameType | None], object]) -> dict[int, Any]:
    """Set the handler of all signals that end a command; return the handlers before.

    A HUP that is ignored, as with nohup, stays ignored.
    """

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
