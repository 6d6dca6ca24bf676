"""Keeps the payloads of the newest rounds, and the mail with them; the record stays whole."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.actors.payload_removal import PayloadRemover
from ledger.actors.round_blobs import BlobUse, blobs_of_round
from ledger.chain.contract.complete_log import CompleteLog
from ledger.protocol.ledger_state import LedgerStage
from ledger.protocol.types import Digest
from ledger.storage.mailbox import remove_mail

if TYPE_CHECKING:
    from api.store.charges import Charges
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.storage.blobs import FolderBlobs

PinnedBlobs = Callable[[], Collection[Digest]]

_TOLD_BY_RECORD = {BlobUse.PAYLOAD, BlobUse.VECTOR}


@dataclass(slots=True)
class _Kept:
    """A run's chain, as of the newest final block that was looked at, and blobs."""

    ledger: CommitteeLedger
    blobs: FolderBlobs


class Retention:
    """Removes what clients have put in old rounds, but for what the record names.

    A round has ended when that is final: what a reorganisation opens again still has its payloads.

    Args:
        ledger: the contract.
        blobs: of the store's folder, where the mail lies, too.
        charges: what was put in which round: of a round without a decision nothing else tells.
        rounds: how many of the newest rounds keep their payloads.
        others: returns what else the folder is kept for, the blobs of other runs.
    """

    def __init__(
        self,
        ledger: CommitteeLedger,
        blobs: FolderBlobs,
        charges: Charges,
        rounds: int,
        others: PinnedBlobs = frozenset,
    ) -> None:
        self._ledger = ledger
        self._log = CompleteLog()
        self._run = _Kept(ledger, blobs)
        self._domain = ledger.domain()
        self._charges = charges
        self._rounds = rounds
        self._others = others
        self._pinned: set[Digest] = set()
        self._old = PayloadRemover(self._run, rounds, self._pinned)
        self._ended = 0

    def look(self) -> None:
        """Remove what is old by now.

        Raises:
            IncompleteLogsError: the chain's logs do not lead to the contract's own state.
            ChainError: the chain cannot be read.
            BlobError: a blob cannot be removed.
            OSError: mail or charges cannot be removed.
        """
        chain = self._ledger.chain
        self._run.ledger = self._log.up_to(self._ledger, chain.block(chain.finalized()))
        state = self._run.ledger.state()
        ended = state.round - 1 if state.stage is LedgerStage.OPEN else state.round
        if ended <= self._ended:
            return
        # Read now, and not when each round ended: something may be put into it for one round more,
        # and take its time to come. What the open round needs may be an old round's, too.
        newest, charged = ended - self._rounds, self._charges.rounds()
        self._pinned.clear()
        self._pinned.update(self._others())
        self._pinned.update(*(self._charges.blobs_of(n) for n in charged if n > newest))
        for number in charged:
            if number <= newest:
                self._old.ended(number, self._put_in(number))
        self._old.ended(ended, ())
        self._ended = ended
        self._forget(newest)

    def _put_in(self, round_number: int) -> set[Digest]:
        """Return what may go of what clients have put in a round.

        Nothing of a round whose record cannot be read: nobody can tell its vectors, which stay.
        """
        named = blobs_of_round(self._run.ledger, self._run.blobs, round_number)
        if named is not None and not any(blob.use in _TOLD_BY_RECORD for blob in named):
            return set()
        return self._charges.blobs_of(round_number)

    def _forget(self, newest: int) -> None:
        """Remove mail and charges up to a round that nobody can write to any more."""
        for number in self._charges.rounds():
            if number <= min(newest, self._ended - 2):
                self._charges.forget(number)
        remove_mail(self._run.blobs.folder, self._domain, newest + 1)
