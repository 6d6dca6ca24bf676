"""Options of an audit: progress, cancellation, processes; none changes a byte of its report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.protocol.errors import CmflError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.audit.report import AuditStep, StepOutcome
    from ledger.protocol.rules.distance import Distances
    from ledger.storage.blobs import BlobReader


class AuditCancelledError(CmflError):
    """The caller has cancelled the audit: there is no report."""


@dataclass(frozen=True, slots=True)
class StepProgress:
    """One of the ten steps, as far as an audit has come.

    Attributes:
        number: which.
        outcome: the outcome that is certain by now: failed or not checkable; None while nothing
            speaks against it, which is no pass before the end.
        contradictions: how many so far.
        missing_count: how many things could not be checked so far.
    """

    number: AuditStep
    outcome: StepOutcome | None
    contradictions: int
    missing_count: int

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return {
            "number": int(self.number),
            "outcome": None if self.outcome is None else str(self.outcome),
            "contradictions": self.contradictions,
            "missing_count": self.missing_count,
        }


@dataclass(frozen=True, slots=True)
class AuditProgress:
    """Progress of an audit.

    Attributes:
        done: rounds that all steps have seen.
        total: rounds that have ended.
        steps: the ten steps in order.
    """

    done: int
    total: int
    steps: tuple[StepProgress, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        steps = [step.as_dict() for step in self.steps]
        return {"done": self.done, "total": self.total, "steps": steps}


WORKER_START_BYTES = 500_000_000
"""Bytes of blobs whose checking takes as long as processes take to begin."""


@dataclass(frozen=True, slots=True)
class AuditWorkers:
    """Processes that check rounds while another one replays the chain.

    Each of them holds the blobs of a round.

    Attributes:
        processes: how many, at least 1.
        blobs: opens the blobs in such a process; a function of a module, or a class, with its
            arguments bound by `functools.partial`.
        begin_after: bytes of blobs that are checked before the first of them begins.
    """

    processes: int
    blobs: Callable[[], BlobReader]
    start_after_bytes: int = WORKER_START_BYTES


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Options of an audit.

    Attributes:
        progress: called after each round; None for no caller.
        is_cancelled: asked between rounds, and between blocks of a chain file.
        distances: how true distances are computed; None for the fastest that is here. Where there
            are workers it is a function of a module.
        workers: processes that check rounds; None for all in this one.
    """

    progress: Callable[[AuditProgress], None] | None = None
    is_cancelled: Callable[[], bool] | None = None
    distances: Distances | None = None
    workers: AuditWorkers | None = None

    def go_on(self) -> None:
        """Return if the audit is still wanted.

        Raises:
            AuditCancelledError: it is not.
        """
        if self.is_cancelled is not None and self.is_cancelled():
            raise AuditCancelledError("the audit was cancelled: it has come to no verdict")
