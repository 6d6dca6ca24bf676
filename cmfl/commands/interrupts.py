"""Commands that go on until Ctrl-C or SIGTERM, and then end in order."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def until_interrupted() -> Iterator[None]:
    """End the context cleanly on Ctrl-C and on SIGTERM, also where a module is being imported."""
    numbers = signal.SIGINT, signal.SIGTERM
    before = [signal.signal(number, signal.default_int_handler) for number in numbers]
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
