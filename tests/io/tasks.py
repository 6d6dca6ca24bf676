"""What processes of pools and children do in tests; light, because each of them imports it anew."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from ledger.io.processes import StoppedError, follow_parent


def tripled(item: int, report: Callable[[int], None]) -> int:
    for step in range(item):
        report(step)
    return 3 * item


def refusing(item: int, _report: Callable[[int], None]) -> int:
    if item == 2:
        raise ValueError("two is refused")
    return item


def dying(item: int, _report: Callable[[int], None]) -> int:
    if item == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def endless(folder: Path, report: Callable[[int], None]) -> None:
    """Report until stopped, and leave a file that says so."""
    try:
        while True:
            report(os.getpid())
            time.sleep(0.01)
    except StoppedError:
        (folder / f"{os.getpid()}.stopped").touch()
        raise


def answering(text: str, connection: Connection[str, str]) -> None:
    follow_parent()
    connection.send(text + connection.recv() + os.environ["CMFL_CHILD"])
    connection.recv()
