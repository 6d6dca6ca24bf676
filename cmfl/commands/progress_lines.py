"""Progress without a terminal: occasional lines for the output of a job.

A line is printed for every tenth of the work, at least `SOONEST` seconds after the previous one, so
that quick work prints nothing; and after `LATEST` seconds in any case.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from types import TracebackType
    from typing import Self, TypeVar

    from rich.progress import TaskID

    T = TypeVar("T")

SOONEST = 10.0
LATEST = 300.0
PARTS = 10


@dataclass(slots=True)
class _Work:
    name: str
    total: float | None
    done: float
    shown_at: float
    note: str = ""
    shown_parts: int = 0

    @property
    def parts(self) -> int:
        return int(PARTS * self.done // self.total) if self.total else 0

    def __str__(self) -> str:
        of = "" if self.total is None else f" of {self.total:.0f}"
        return f"{self.name}: {self.done:.0f}{of}{f', {self.note}' if self.note else ''}"


@dataclass(slots=True)
class ProgressLines:
    """Lines of progress, with the interface of `rich.progress.Progress`.

    Attributes:
        show: prints a line.
        clock: monotonic seconds.
    """

    show: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    _works: list[_Work] = field(default_factory=list)

    def __enter__(self) -> Self:
        """Start; nothing is shown yet."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """End without a line."""

    def add_task(
        self, description: str, *, total: float | None = None, completed: int = 0, said: str = ""
    ) -> TaskID:
        """Add a piece of work, and return its number.

        Args:
            description: its name.
            total: number of steps; None if unknown.
            completed: steps done before.
            said: note about the newest step.
        """
        work = _Work(description, total, completed, self.clock(), said)
        work.shown_parts = work.parts
        self._works.append(work)
        return cast("TaskID", len(self._works) - 1)

    def update(
        self,
        task: TaskID,
        *,
        total: float | None = None,
        completed: float | None = None,
        advance: float = 0,
        description: str | None = None,
        said: str | None = None,
    ) -> None:
        """Update a piece of work; None leaves a value unchanged.

        Args:
            task: its number.
            total: number of steps.
            completed: steps done.
            advance: additional steps done.
            description: its name.
            said: note about the newest step.
        """
        work = self._works[task]
        work.total = work.total if total is None else total
        work.done = (work.done if completed is None else completed) + advance
        work.name = work.name if description is None else description
        work.note = work.note if said is None else said
        self._show(work)

    def advance(self, task: TaskID, advance: float = 1) -> None:
        """Add completed steps."""
        self.update(task, advance=advance)

    def track(self, sequence: Collection[T], *, description: str) -> Iterator[T]:
        """Yield the elements of a collection, with progress."""
        task = self.add_task(description, total=len(sequence))
        for element in sequence:
            yield element
            self.advance(task)

    def _show(self, work: _Work) -> None:
        now, parts = self.clock(), work.parts
        waited = now - work.shown_at
        if waited < SOONEST or (parts <= work.shown_parts and waited < LATEST):
            return
        work.shown_at, work.shown_parts = now, parts
        self.show(str(work))
