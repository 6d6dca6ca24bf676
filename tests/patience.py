"""How long a test waits for a sign of another process or thread: the one bound of all of them.

A wait ends with its sign, so the bound costs a passing test nothing, however slow the machine is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_SECONDS = 120.0
_POLL_SECONDS = 0.02
_MEASURED_SECONDS = 0.2

_Sign = TypeVar("_Sign")


def wait_until(sign: Callable[[], _Sign], state: Callable[[], object] = str) -> _Sign:
    """Return the first true value of `sign`; fail with `state` after PATIENCE_SECONDS."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (seen := sign()):
        assert time.monotonic() < deadline, state()
        time.sleep(_POLL_SECONDS)
    return seen


def slowness() -> float:
    """Return how many seconds a second of processor time takes here: 1 on an idle machine."""
    begun, ends = time.monotonic(), time.process_time() + _MEASURED_SECONDS
    while time.process_time() < ends:
        pass
    return max(1.0, (time.monotonic() - begun) / _MEASURED_SECONDS)
