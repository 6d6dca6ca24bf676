"""Audits and retraining beside the rounds: they take as long as several, and nothing waits."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.audit.engine import audit
from ledger.protocol.errors import ChainError
from tests.federation.retraining import Retraining

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.audit.earlier_report import EarlierAudit
    from ledger.audit.report import AuditReport
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.protocol.types import ClientId
    from ledger.storage.blobs import BlobReader


@dataclass(frozen=True, slots=True)
class Inspected:
    """What an inspection came to."""

    report: AuditReport
    differing: dict[int, tuple[ClientId, ...]]


class Inspection:
    """One inspection at a time, in a thread of its own."""

    def __init__(self, ledger: CommitteeLedger, blobs: BlobReader) -> None:
        self._ledger = ledger
        self._blobs = blobs
        self._threads = ThreadPoolExecutor(1)
        self._running: Future[Inspected | None] | None = None
        self._retraining: Retraining | None = None

    @property
    def is_running(self) -> bool:
        return self._running is not None

    def begin(
        self,
        earlier: EarlierAudit | None,
        rounds: range,
        liars: Mapping[int, frozenset[ClientId]],
    ) -> None:
        assert self._running is None, "one at a time"
        self._running = self._threads.submit(self._inspected, earlier, rounds, dict(liars))

    def taken(self, *, waits: bool = False) -> Inspected | None:
        """Return what it came to; None while it runs, or if the node did not answer."""
        running = self._running
        if running is None or not (waits or running.done()):
            return None
        self._running = None
        return running.result()

    def close(self) -> None:
        self._threads.shutdown()
        if self._retraining is not None:
            self._retraining.close()

    def _inspected(
        self,
        earlier: EarlierAudit | None,
        rounds: range,
        liars: Mapping[int, frozenset[ClientId]],
    ) -> Inspected | None:
        try:
            report = audit(self._ledger, self._blobs, earlier=earlier)
            if self._retraining is None:
                self._retraining = Retraining(self._ledger, self._blobs)
            differing = {
                number: self._retraining.differing(number, liars.get(number, frozenset()))
                for number in rounds
            }
        except ChainError:
            return None  # the node is being restarted; the next one takes these rounds too
        return Inspected(report, differing)
