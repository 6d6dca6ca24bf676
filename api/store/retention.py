"""Retention of the newest rounds' payloads and mail; the record of every round stays whole."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from api.store.charges import Charges
from ledger.actors.retention import BlobUse, PayloadRemover, blobs_of_round
from ledger.chain.contract.committee_ledger import CommitteeLedger
from ledger.chain.contract.complete_log import CompleteLog
from ledger.protocol.ledger_state import LedgerStage
from ledger.protocol.types import Digest
from ledger.storage.blobs import FolderBlobs
from ledger.storage.mailbox import remove_mail

PinnedBlobs = Callable[[], Collection[Digest]]

_NAMED_BY_RECORD = {BlobUse.PAYLOAD, BlobUse.VECTOR}


@dataclass(slots=True)
class _FinalRun:
    """A run's contract as of the newest final block, and its blobs."""

    ledger: CommitteeLedger
    blobs: FolderBlobs


class Retention:
    """Removes the uploads of old rounds, except those that the record names.

    A round has ended when its end is final: a reorganisation may open it again, with its payloads.

    Args:
        charges: the uploads of each round; the only list for a round without a decision.
        rounds: number of newest rounds whose payloads are retained.
    """

    def __init__(
        self,
        ledger: CommitteeLedger,
        blobs: FolderBlobs,
        charges: Charges,
        rounds: int,
        pinned: PinnedBlobs = frozenset,
    ) -> None:
        self._ledger = ledger
        self._log = CompleteLog()
        self._run = _FinalRun(ledger, blobs)
        self._domain = ledger.domain()
        self._charges = charges
        self._rounds = rounds
        self._pinned_by_others = pinned
        self._pinned: set[Digest] = set()
        self._remover = PayloadRemover(self._run, rounds, self._pinned)
        self._ended = 0

    def remove_old(self) -> None:
        """Remove what is old by now."""
        chain = self._ledger.chain
        self._run.ledger = self._log.up_to(self._ledger, chain.block(chain.finalized()))
        state = self._run.ledger.state()
        ended = state.round - 1 if state.stage is LedgerStage.OPEN else state.round
        if ended <= self._ended:
            return
        # Charges are read now, not when each round ended: clients may write to it for one round
        # more, and slowly. The open round may need blobs of an old one.
        newest, charged = ended - self._rounds, self._charges.rounds()
        self._pinned.clear()
        self._pinned.update(self._pinned_by_others())
        self._pinned.update(*(self._charges.blobs_of(n) for n in charged if n > newest))
        for number in charged:
            if number <= newest:
                self._remover.ended(number, self._removable(number))
        self._remover.ended(ended, ())
        self._ended = ended
        self._remove_mail_and_charges(newest)

    def _removable(self, round_number: int) -> set[Digest]:
        """Return the uploads of a round that may go; none if its record cannot be read."""
        named = blobs_of_round(self._run.ledger, self._run.blobs, round_number)
        if named is not None and not any(blob.use in _NAMED_BY_RECORD for blob in named):
            return set()  # without the record its vectors are unknown, and they stay
        return self._charges.blobs_of(round_number)

    def _remove_mail_and_charges(self, newest: int) -> None:
        for number in self._charges.rounds():
            # A round that clients can still write to keeps its charges.
            if number <= min(newest, self._ended - 2):
                self._charges.forget(number)
        remove_mail(self._run.blobs.folder, self._domain, newest + 1)
