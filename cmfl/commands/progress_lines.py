"""Progress without a terminal: occasional lines for the output of a job.

A line is printed for every tenth of the work, at least `SOONEST` seconds after the previous one, so
that quick work prints nothing; and after `LATEST` seconds in any case.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rich.progress import Progress, TaskID

SOONEST = 10.0
LATEST = 300.0
PARTS = 10


class ProgressLines(Progress):
    """Bars that are never drawn, and print a line from time to time; `clock` is in seconds."""

    def __init__(
        self, show: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(auto_refresh=False, disable=True)
        self._say, self._clock = show, clock
        self._shown: dict[TaskID, tuple[float, int]] = {}

    def add_task(self, description: str, *arguments: Any, **options: Any) -> TaskID:
        """Add a piece of work, and return its number."""
        task = super().add_task(description, *arguments, **options)
        self._shown[task] = self._clock(), self._parts(task)
        return task

    def update(self, task_id: TaskID, **changes: Any) -> None:
        """Update a piece of work, and print a line if it is time for one."""
        super().update(task_id, **changes)
        (before, shown), now, parts = self._shown[task_id], self._clock(), self._parts(task_id)
        if now - before < SOONEST or (parts <= shown and now - before < LATEST):
            return
        self._shown[task_id] = now, parts
        task = self._tasks[task_id]
        of = "" if task.total is None else f" of {task.total:.0f}"
        note = f", {task.fields['said']}" if task.fields.get("said") else ""
        self._say(f"{task.description}: {task.completed:.0f}{of}{note}")

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        """Add completed steps."""
        self.update(task_id, advance=advance)

    def _parts(self, task_id: TaskID) -> int:
        task = self._tasks[task_id]
        return int(PARTS * task.completed // task.total) if task.total else 0
