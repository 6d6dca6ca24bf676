"""The interface of an experiment tracker, and what is logged to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run, as trackers describe it.

    Attributes:
        name: of the run in its home.
        key: 16 hex digits that are the same for this run in every tracker, and for no other.
        parameters: its settings by their names, `section.key`.
        tags: where it is recorded, by name.
    """

    name: str
    key: str
    parameters: Mapping[str, str]
    tags: Mapping[str, str]

    @property
    def title(self) -> str:
        """The name that people see, different for runs of one name."""
        return f"{self.name}-{self.key[:8]}"


@dataclass(frozen=True, slots=True)
class TrackedRow:
    """One round, as trackers log it.

    Attributes:
        round: t, the step.
        head: of the ledger after the round, 0x-hex.
        metrics: its numbers by name.
    """

    round: int
    head: str
    metrics: Mapping[str, float]


class ExperimentTracker(Protocol):
    """One tracker; whatever it raises ends its part in the run, and nothing else."""

    def open(self, run: TrackedRun, rows: Sequence[TrackedRow]) -> None:
        """Open the record of a run, a new one or that of an earlier session.

        Args:
            run: what it is.
            rows: all rounds so far: afterwards each of them is in the record once, and no other.
        """

    def log(self, row: TrackedRow) -> None:
        """Add a round."""

    def close(self, tags: Mapping[str, str], model: Path | None) -> str:
        """End the record.

        Args:
            tags: what is known at the end: head, rounds and verdict.
            model: the file to log; None for none.

        Returns:
            Where the record is.
        """

    def abort(self) -> None:
        """End the record of a run that was cut off, to be resumed."""


def tracked_row(values: Mapping[str, Any]) -> TrackedRow:
    """Return a row of a run's metrics as numbers.

    Clients are counted, the accuracy of each client becomes mean and minimum, and views are those
    of the slower of the two votes, from 1. What was not measured is left out.

    Args:
        values: of a `RoundMetrics`, by name.
    """
    metrics: dict[str, float] = {}
    for name, value in values.items():
        if value is None or name in {"round", "head"}:
            continue
        if name == "client_accuracy":
            known = [each for each in value if each is not None]
            if known:
                metrics["client_accuracy_mean"] = sum(known) / len(known)
                metrics["client_accuracy_min"] = min(known)
        elif name == "views":
            metrics[name] = float(max(value) + 1)
        else:
            metrics[name] = float(len(value) if isinstance(value, list | tuple) else value)
    return TrackedRow(int(values["round"]), str(values["head"]), metrics)
