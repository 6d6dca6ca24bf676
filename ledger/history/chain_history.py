"""A deployment's history, read from the chain's own logs and storage as of one block."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ledger.chain.contract.calls import DecideCall, ReportCall
from ledger.chain.ports import IncompleteLogsError, NotServedError
from ledger.history.digests import (
    KnownDigests,
    digests_of_deployment,
    digests_of_events,
    digests_of_round,
    in_order,
)
from ledger.history.documents import Documents, read_documents
from ledger.history.folding import Past
from ledger.history.pages import read_page
from ledger.history.participation import Tally, lacks_record, participation_of
from ledger.history.paths import ChainPath, DeploymentPath
from ledger.history.source import TooLongError
from ledger.protocol.fold import registry_with_bans
from ledger.protocol.ledger_state import ClientsRegistered, LedgerOpened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.history.digests import Entry, Occurrence
    from ledger.history.participation import Participation
    from ledger.history.queries import RoundPage, RoundQuery
    from ledger.history.round import Round
    from ledger.protocol.ledger_state import ClientBanned, Deployment, EquivocationReport
    from ledger.protocol.types import ClientId, Digest, RegisteredClient
    from ledger.storage.blobs import BlobReader

TALLY_BATCH = 200
"""Rounds that are read at once while clients' counts are made."""

MAX_ROUNDS_WITHOUT_INDEX = 256
"""Rounds that are read through for a digest; a longer history takes an index."""


@dataclass(slots=True)
class DeploymentCache:
    """What of a deployment cannot change any more, or not before the next block, as it is read.

    Attributes:
        bans: up to one block, with its hash.
        registry: all clients as they were registered; empty until they are all there.
        tally: the counts over the first rounds, those that have ended in final blocks.
        counted: how many these are.
        without_record: those among them that `tally` leaves out: their record may come back.
        digests: of the first rounds of which nothing is missing.
    """

    bans: tuple[bytes, tuple[ClientBanned, ...]] | None = None
    registry: tuple[RegisteredClient, ...] = ()
    tally: Tally | None = None
    counted: int = 0
    rounds_without_record: list[int] = field(default_factory=list)
    digests: KnownDigests = field(default_factory=KnownDigests, repr=False)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)


@dataclass(frozen=True, slots=True)
class ChainHistory:
    """The history of one deployment as of one block, from its events; see `HistorySource`.

    Attributes:
        ledger: the contract.
        fixed: what was fixed at deployment.
        blobs: where the documents are.
        to_block: the last block that is read.
        final: the newest block that is regarded as final.
        kept: what can be remembered between one history of the deployment and the next.
        block_hash: of the last block that is read; None where nothing is remembered by it.
    """

    ledger: CommitteeLedger
    fixed: Deployment
    blobs: BlobReader
    to_block: int
    final: int
    kept: DeploymentCache = field(default_factory=DeploymentCache, repr=False)
    block_hash: bytes | None = None
    _times: dict[int, int] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(ledger: CommitteeLedger, blobs: BlobReader) -> ChainHistory:
        """Return the history up to the newest block.

        Args:
            ledger: the contract.
            blobs: where the documents are.
        """
        chain = ledger.chain
        newest, final = chain.head().number, chain.finalized()
        return ChainHistory(ledger, ledger.deployment(), blobs, newest, final)

    @property
    def path(self) -> DeploymentPath:
        """Its name: the chain's, and the contract's address."""
        chain = self.ledger.chain
        return DeploymentPath(ChainPath(chain.chain_id, chain.genesis_hash), self.ledger.address)

    def newest(self) -> int:
        """Return the number of the newest round that has opened, 0 before the first."""
        return self._past.newest()

    def round(self, number: int) -> Round | None:
        """Return a round with all that came in, None if it has not opened."""
        return self._past.one(number)

    def rounds(self, first: int, last: int) -> list[Round]:
        """Return the rounds of a range by their openings and ends, ascending."""
        return self._past.some(first, last)

    def some(self, numbers: Iterable[int]) -> list[Round]:
        """Return some rounds by their openings and ends, ascending."""
        return [one for number in numbers for one in self.rounds(number, number)]

    def page(self, walk: RoundQuery, limit: int, cursor: str | None) -> RoundPage:
        """Return one page of rounds."""
        return read_page(self, walk, limit, cursor)

    def parts(self, client: ClientId, rounds: Sequence[Round]) -> list[Participation]:
        """Return what a client was and did in some rounds, in their order.

        Raises:
            ValueError: it took no part in one of them.
        """
        found = []
        for line in rounds:
            one = self.round(line.round) or line
            part = participation_of(one, self.documents(one), client)
            if part is None:
                raise ValueError(f"client {client} took no part in round {line.round}")
            found.append(part)
        return found

    def occurrences(self, digest: Digest, first: int, limit: int) -> list[Occurrence]:
        """Return where a digest stands, by reading all rounds through.

        Raises:
            TooLongError: there are too many for that.
        """
        newest, known = self.newest(), self.kept.digests
        if newest > MAX_ROUNDS_WITHOUT_INDEX:
            raise TooLongError(
                f"{newest} rounds are too many to look a digest up without an index: "
                f"{MAX_ROUNDS_WITHOUT_INDEX} are read through at most; cmfl index build makes one"
            )
        with known.lock:
            entries = {entry for entry in self._unfinished(newest) if entry[0] == digest}
            entries |= known.entries.get(digest, set())
        return in_order(entries)[first : first + limit]

    def _unfinished(self, newest: int) -> Iterator[Entry]:
        """Yield the digests that may change still; what cannot is added to what is known."""
        known = self.kept.digests
        yield from self._digests_of_registration()
        for number in range(known.rounds + 1, newest + 1):
            one = self.round(number)
            assert one is not None, "it has opened"
            documents = self.documents(one)
            events = self.ledger.round_events(number, self.to_block)
            entries = list(digests_of_round(one, documents, events))
            is_final = one.ended is not None and one.ended.block_number <= self.final
            is_whole = documents.has_incidents and not lacks_record(one, documents)
            if is_final and is_whole and number == known.rounds + 1:
                known.add(entries)
            else:
                yield from entries

    def _digests_of_registration(self) -> Iterator[Entry]:
        opening = self.ledger.opening(1, self.to_block)
        until = self.to_block if opening is None else opening.opened_block
        events = self.ledger.events(self.ledger.from_block, until)
        kinds = (ClientsRegistered, LedgerOpened)
        registered = [one for one in events if isinstance(one.event, kinds)]
        if registered:
            yield from digests_of_deployment(self.fixed)
        yield from digests_of_events(registered, 0)

    def documents(self, one: Round) -> Documents:
        """Return the documents that a round's decision names."""
        return read_documents(self.blobs, one)

    def registered(self) -> tuple[RegisteredClient, ...]:
        """Return the clients registered so far, with the bans that the chain holds.

        Raises:
            IncompleteLogsError: the logs hold fewer than the contract says.
        """
        registered = self.fixed.clients
        if self.ledger.opening(1, self.to_block) is None:
            registered = self.ledger.state(self.to_block).registered
        return registry_with_bans(self._registry(registered), self._bans())

    def tally(self) -> Tally:
        """Return every client's counts over the rounds that have ended."""
        newest, kept = self.newest(), self.kept
        with kept.lock:
            self._keep_counts(newest)
            counted, missing = kept.counted, list(kept.rounds_without_record)
            tally = kept.tally or Tally.empty(self.fixed.clients)
        late = [one for number in missing for one in self.rounds(number, number)]
        late += [one for some in self._in_parts(counted + 1, newest) for one in some]
        return tally.with_rounds(self._documented(late))

    def _keep_counts(self, newest: int) -> None:
        """Add to what is kept the rounds that have ended in final blocks since."""
        kept = self.kept
        tally = kept.tally or Tally.empty(self.fixed.clients)
        for some in self._in_parts(kept.counted + 1, newest):
            final = [one for one in some if one.ended and one.ended.block_number <= self.final]
            documented = list(self._documented(final))
            whole = [pair for pair in documented if not lacks_record(*pair)]
            kept.rounds_without_record += [
                pair[0].round for pair in documented if lacks_record(*pair)
            ]
            tally = tally.with_rounds(whole)
            kept.counted += len(final)
            if len(final) < len(some):
                break
        kept.tally = tally

    def _in_parts(self, first: int, newest: int) -> Iterator[list[Round]]:
        for start in range(first, newest + 1, TALLY_BATCH):
            yield self.rounds(start, min(newest, start + TALLY_BATCH - 1))

    def _documented(self, rounds: Iterable[Round]) -> Iterator[tuple[Round, Documents]]:
        """Return the rounds that have ended, with their documents, one after the other."""
        for one in rounds:
            if one.ended is not None:
                yield one, self.documents(one)

    def time_of(self, block_number: int) -> int:
        """Return a block's time, in Unix seconds."""
        if block_number not in self._times:
            self._times[block_number] = self.ledger.chain.block(block_number).timestamp
        return self._times[block_number]

    def decision_call(self, one: Round) -> DecideCall | None:
        """Return the call data that decided a round.

        Raises:
            NotServedError: the chain has another transaction in its place.
        """
        if one.ended is None:
            raise NotServedError(f"round {one.round} is decided, but no log says where")
        transaction = one.ended.transaction_hash
        call = self.ledger.call_of(transaction)
        if call is not None and not isinstance(call, DecideCall):
            raise NotServedError(f"transaction 0x{transaction.hex()} does not call decide")
        return call

    def ban_report(self, recorded: RecordedEvent) -> EquivocationReport | None:
        """Return the two statements that a ban rests on.

        Raises:
            NotServedError: the chain has another transaction in its place.
        """
        call = self.ledger.call_of(recorded.transaction_hash)
        if call is not None and not isinstance(call, ReportCall):
            raise NotServedError(
                f"transaction 0x{recorded.transaction_hash.hex()} does not call report_equivocation"
            )
        return None if call is None else call.report

    @property
    def _past(self) -> Past:
        return Past(
            self.ledger,
            self.fixed,
            self.to_block,
            lambda: self._registry(self.fixed.clients),
            self._bans,
        )

    def _bans(self) -> tuple[ClientBanned, ...]:
        """Return the bans up to the last block, which are read once for each."""
        known, last = self.kept.bans, self.to_block
        if known is not None and known[0] == self.block_hash:
            return known[1]
        found = self.ledger.bans(last)
        # A chain that was reorganised meanwhile has told of another block.
        if self.block_hash is not None and self.ledger.chain.block(last).hash == self.block_hash:
            self.kept.bans = self.block_hash, found
        return found

    def _registry(self, wanted: int) -> tuple[RegisteredClient, ...]:
        """Return the first clients as they were registered.

        Raises:
            IncompleteLogsError: the logs hold fewer.
        """
        found = self.kept.registry or self.ledger.registry()
        if len(found) < wanted:
            raise IncompleteLogsError(
                self.ledger.node,
                f"the logs hold the registration of {len(found)} clients, not of {wanted}",
            )
        if len(found) == self.fixed.clients:
            self.kept.registry = found
        return found[:wanted]
