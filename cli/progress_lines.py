"""Progress where there is no terminal: now and then a line, as the output of a job needs.

A line comes with every tenth of the work, but not sooner than `SOONEST` seconds after the one
before it, so that what is quick says nothing; and after `LATEST` seconds in any case.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from cli.console import complain

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
    said: str = ""
    shown_parts: int = 0

    @property
    def parts(self) -> int:
        return int(PARTS * self.done // self.total) if self.total else 0

    def __str__(self) -> str:
        of = "" if self.total is None else f" of {self.total:.0f}"
        return f"{self.name}: {self.done:.0f}{of}{f', {self.said}' if self.said else ''}"


@dataclass(slots=True)
class ProgressLines:
    """Lines on standard error, asked for as `rich.progress.Progress` is for its bars.

    Attributes:
        clock: seconds, of which differences count.
    """

    clock: Callable[[], float] = time.monotonic
    _works: list[_Work] = field(default_factory=list)

    def __enter__(self) -> Self:
        """Begin; nothing is shown yet."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Show no more; a command that fails says so itself."""

    def add_task(
        self, description: str, *, total: float | None = None, completed: int = 0, said: str = ""
    ) -> TaskID:
        """Begin to show a piece of work, and return its number.

        Args:
            description: what it is called.
            total: its steps; None while nobody knows.
            completed: steps that were done before.
            said: about the newest step.
        """
        made = _Work(description, total, completed, self.clock(), said)
        made.shown_parts = made.parts
        self._works.append(made)
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
        """Show how far it is; what is not given stays.

        Args:
            task: its number.
            total: its steps.
            completed: steps that are done.
            advance: steps that are done beside.
            description: what it is called.
            said: about the newest step.
        """
        work = self._works[task]
        work.total = work.total if total is None else total
        work.done = (work.done if completed is None else completed) + advance
        work.name = work.name if description is None else description
        work.said = work.said if said is None else said
        self._show(work)

    def advance(self, task: TaskID, advance: float = 1) -> None:
        """Show that so many more steps are done.

        Args:
            task: number of the work.
            advance: how many.
        """
        self.update(task, advance=advance)

    def track(self, sequence: Collection[T], *, description: str) -> Iterator[T]:
        """Yield what is gone through, and show how far that is.

        Args:
            sequence: what is gone through.
            description: what it is called.
        """
        task = self.add_task(description, total=len(sequence))
        for one in sequence:
            yield one
            self.advance(task)

    def _show(self, work: _Work) -> None:
        now, parts = self.clock(), work.parts
        waited = now - work.shown_at
        if waited < SOONEST or (parts <= work.shown_parts and waited < LATEST):
            return
        work.shown_at, work.shown_parts = now, parts
        complain(str(work))
