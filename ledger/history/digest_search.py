"""The search for a digest through all rounds of a history, where no index answers it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.history.digests import (
    digests_of_deployment,
    digests_of_events,
    digests_of_round,
    in_order,
)
from ledger.history.participation import lacks_record
from ledger.history.source import TooLongError
from ledger.protocol.ledger_state import ClientsRegistered, LedgerOpened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.history.digests import Entry, KnownDigests, Occurrence
    from ledger.history.documents import Documents
    from ledger.history.round import HistoryRound
    from ledger.protocol.ledger_state import Deployment
    from ledger.protocol.types import Digest

MAX_ROUNDS_WITHOUT_INDEX = 256
"""Rounds that are read through for a digest; a longer history takes an index."""


@dataclass(frozen=True, slots=True)
class DigestSearch:
    """A history that is read through for digests.

    Attributes:
        ledger: the contract.
        fixed: the parameters of the contract.
        to_block: the last block that is read.
        final: number of the newest final block.
        newest: number of the newest round that has opened.
        known: the digests of rounds that cannot change; takes those of further ones.
        read: returns a round that has opened, with its documents.
    """

    ledger: CommitteeLedger
    fixed: Deployment
    to_block: int
    final: int
    newest: int
    known: KnownDigests
    read: Callable[[int], tuple[HistoryRound, Documents]]

    def occurrences(self, digest: Digest) -> list[Occurrence]:
        """Return the places of a digest.

        Raises:
            TooLongError: there are too many rounds to read.
        """
        if self.newest > MAX_ROUNDS_WITHOUT_INDEX:
            raise TooLongError(
                f"{self.newest} rounds are too many to look a digest up without an index: "
                f"{MAX_ROUNDS_WITHOUT_INDEX} are read through at most; cmfl index build makes one"
            )
        with self.known.lock:
            entries = {entry for entry in self._unfinished() if entry[0] == digest}
            entries |= self.known.entries.get(digest, set())
        return in_order(entries)

    def _unfinished(self) -> Iterator[Entry]:
        """Yield the digests that may still change; add the others to the known ones."""
        yield from self._of_registration()
        for number in range(self.known.rounds + 1, self.newest + 1):
            round_, documents = self.read(number)
            events = self.ledger.round_events(number, self.to_block)
            entries = list(digests_of_round(round_, documents, events))
            is_final = round_.ended is not None and round_.ended.block_number <= self.final
            is_whole = documents.has_incidents and not lacks_record(round_, documents)
            if is_final and is_whole and number == self.known.rounds + 1:
                self.known.add(entries)
            else:
                yield from entries

    def _of_registration(self) -> Iterator[Entry]:
        opening = self.ledger.opening(1, self.to_block)
        until = self.to_block if opening is None else opening.opened_block
        events = self.ledger.events(self.ledger.from_block, until)
        kinds = (ClientsRegistered, LedgerOpened)
        registered = [recorded for recorded in events if isinstance(recorded.event, kinds)]
        if registered:
            yield from digests_of_deployment(self.fixed)
        yield from digests_of_events(registered, 0)
