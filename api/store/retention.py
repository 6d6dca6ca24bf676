"""Keeps the payloads of the newest rounds, and the mail with them; the record stays whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from api.store.standing import domain_of
from ledger.actors.mailboxes.folder import FolderMailbox
from ledger.actors.removal import OldPayloads
from ledger.protocol.ledger_state import Stage

if TYPE_CHECKING:
    from api.store.charges import Charges
    from ledger.blobs.store import FolderBlobs
    from ledger.chain.contract.committee_ledger import CommitteeLedger


@dataclass(frozen=True, slots=True)
class _Kept:
    """A run's chain and blobs."""

    ledger: CommitteeLedger
    blobs: FolderBlobs


class Retention:
    """Removes what clients have put in old rounds, but for what the record names.

    Args:
        ledger: the contract.
        blobs: of the store's folder, where the mail lies, too.
        charges: what was put in which round: of a round without a decision nothing else tells.
        rounds: how many of the newest rounds keep their payloads.
    """

    def __init__(
        self, ledger: CommitteeLedger, blobs: FolderBlobs, charges: Charges, rounds: int
    ) -> None:
        self._run = _Kept(ledger, blobs)
        self._mailbox = FolderMailbox(blobs.folder)
        self._domain = domain_of(ledger)
        self._charges = charges
        self._rounds = rounds
        self._old = OldPayloads(self._run, rounds)
        self._ended = 0

    def look(self) -> None:
        """Remove what is old by now.

        Raises:
            ChainError: the chain cannot be read.
            BlobError: a blob cannot be removed.
            OSError: mail or charges cannot be removed.
        """
        state = self._run.ledger.state()
        ended = state.round - 1 if state.stage is Stage.OPEN else state.round
        if ended <= self._ended:
            return
        named = [number for number in self._charges.rounds() if self._ended < number < ended]
        for number in [*named, ended]:
            self._old.ended(number, self._charges.blobs_of(number))
        self._ended = ended
        self._forget(ended - self._rounds)

    def _forget(self, newest: int) -> None:
        """Remove mail and charges up to a round that nobody can write to any more."""
        for number in self._charges.rounds():
            if number <= min(newest, self._ended - 2):
                self._charges.forget(number)
        self._mailbox.remove(self._domain, newest + 1)
