"""Something done in a process of its own, which may loop, crash or change what it likes."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

WALL_SECONDS = 1_800
LAST_WORDS = 400
OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended.

    Attributes:
        answer: what its work returned; None if it died before.
        last_words: the end of what it printed.
        seconds: of CPU.
    """

    answer: Any
    log_tail: str
    seconds: float


def done_apart(work: Callable[[Path], Any]) -> Ended:
    """Do something in a forked process, and leave nothing of it behind.

    Args:
        work: what to do, with a temporary folder; its answer must fit into JSON.
    """
    folder = Path(tempfile.mkdtemp(prefix="mutant-"))
    reading, writing = os.pipe()
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _work(work, folder, writing)
    os.close(writing)
    try:
        answer = _read(reading, started + WALL_SECONDS)
    finally:
        os.close(reading)
        _end_group(child)
        _, _, usage = os.wait4(child, 0)
        printed = folder / OUTPUT
        words = printed.read_text("utf-8", "replace") if printed.exists() else ""
        shutil.rmtree(folder, ignore_errors=True)
    return Ended(
        json.loads(answer) if answer else None, words[-LAST_WORDS:], usage.ru_utime + usage.ru_stime
    )


def _work(work: Callable[[Path], Any], folder: Path, writing: int) -> None:
    """Run in the child: never returns."""
    os.setpgid(0, 0)
    gc.freeze()  # no collection walks through what the parent has imported, and copies its pages
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with (folder / OUTPUT).open("w", encoding="utf-8") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        answer: Any = None
        try:
            answer = work(folder)
        except BaseException:  # noqa: BLE001 - whatever it was, this process ends here
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    os.write(writing, json.dumps(answer).encode() + b"\n")
    # Neither the parent's exit handlers nor its threads are this process's to run.
    os._exit(0)


def _read(reading: int, deadline: float) -> bytes:
    """Return the line that the child wrote; less if it died or is late.

    Not up to the end of the pipe: what the child started may hold it open.
    """
    found = b""
    while not found.endswith(b"\n"):
        ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
        part = os.read(reading, 65_536) if ready else b""
        if not part:
            return b""
        found += part
    return found


def _end_group(child: int) -> None:
    """End the child, if it is late, and what it may have left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
