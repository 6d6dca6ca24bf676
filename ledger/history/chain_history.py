"""A deployment's history from the chain's logs and storage, as of one block."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ledger.chain.contract.calls import DecideCall, ReportCall
from ledger.chain.ports import IncompleteLogsError, NotServedError
from ledger.history.digest_search import DigestSearch
from ledger.history.digests import KnownDigests
from ledger.history.documents import Documents, read_documents
from ledger.history.pages import read_page
from ledger.history.participation import Tally, lacks_record, participation_of
from ledger.history.paths import ChainPath, DeploymentPath
from ledger.history.round import RoundReader
from ledger.protocol.fold import registry_with_bans

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.history.digests import Occurrence
    from ledger.history.participation import Participation
    from ledger.history.queries import RoundPage, RoundQuery
    from ledger.history.round import HistoryRound
    from ledger.protocol.ledger_state import ClientBanned, Deployment, EquivocationReport
    from ledger.protocol.types import ClientId, Digest, RegisteredClient
    from ledger.storage.blobs import BlobReader

TALLY_BATCH = 200
"""Rounds that are read at once while clients' counts are made."""


@dataclass(slots=True)
class DeploymentCache:
    """Cache of the parts of a deployment that cannot change any more, or not before the next block.

    Attributes:
        bans: up to one block, with its hash.
        registry: all clients as they were registered; empty until all are.
        tally: the counts over the first rounds, those that have ended in final blocks.
        counted: number of these rounds.
        rounds_without_record: those among them that `tally` leaves out: a record may reappear.
        digests: of the first rounds with all documents.
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
        fixed: the parameters of the contract.
        blobs: of the documents.
        to_block: the last block that is read.
        final: number of the newest final block.
        cache: shared by the histories of the deployment.
        block_hash: of the last block that is read; None to cache nothing by it.
    """

    ledger: CommitteeLedger
    fixed: Deployment
    blobs: BlobReader
    to_block: int
    final: int
    cache: DeploymentCache = field(default_factory=DeploymentCache, repr=False)
    block_hash: bytes | None = None
    _times: dict[int, int] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(ledger: CommitteeLedger, blobs: BlobReader) -> ChainHistory:
        """Return the history up to the newest block."""
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
        return self._reader.newest()

    def round(self, number: int) -> HistoryRound | None:
        """Return a round with all that came in, None if it has not opened."""
        return self._reader.one(number)

    def rounds(self, first: int, last: int) -> list[HistoryRound]:
        """Return the rounds of a range by their openings and ends, ascending."""
        return self._reader.some(first, last)

    def some(self, numbers: Iterable[int]) -> list[HistoryRound]:
        """Return some rounds by their openings and ends, ascending."""
        return [round_ for number in numbers for round_ in self.rounds(number, number)]

    def page(self, walk: RoundQuery, limit: int, cursor: str | None) -> RoundPage:
        """Return one page of rounds."""
        return read_page(self, walk, limit, cursor)

    def parts(self, client: ClientId, rounds: Sequence[HistoryRound]) -> list[Participation]:
        """Return the parts of a client in some rounds, in their order.

        Raises:
            ValueError: it took no part in one of them.
        """
        parts = []
        for line in rounds:
            round_ = self.round(line.round) or line
            part = participation_of(round_, self.documents(round_), client)
            if part is None:
                raise ValueError(f"client {client} took no part in round {line.round}")
            parts.append(part)
        return parts

    def occurrences(self, digest: Digest, first: int, limit: int) -> list[Occurrence]:
        """Return the places of a digest by searching all rounds; raises TooLongError."""
        search = DigestSearch(
            ledger=self.ledger,
            fixed=self.fixed,
            to_block=self.to_block,
            final=self.final,
            newest=self.newest(),
            known=self.cache.digests,
            read=self._read,
        )
        return search.occurrences(digest)[first : first + limit]

    def _read(self, number: int) -> tuple[HistoryRound, Documents]:
        round_ = self.round(number)
        assert round_ is not None, "it has opened"
        return round_, self.documents(round_)

    def documents(self, round_: HistoryRound) -> Documents:
        """Return the documents that a round's decision names."""
        return read_documents(self.blobs, round_)

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
        newest, cache = self.newest(), self.cache
        with cache.lock:
            self._cache_counts(newest)
            counted, missing = cache.counted, list(cache.rounds_without_record)
            tally = cache.tally or Tally.empty(self.fixed.clients)
        uncached = self.some(missing)
        for batch in self._batches(counted + 1, newest):
            uncached += batch
        return tally.with_rounds(self._documented(uncached))

    def _cache_counts(self, newest: int) -> None:
        """Add to the cache the rounds that have ended in final blocks since."""
        cache = self.cache
        tally = cache.tally or Tally.empty(self.fixed.clients)
        for batch in self._batches(cache.counted + 1, newest):
            final = [r for r in batch if r.ended and r.ended.block_number <= self.final]
            documented = list(self._documented(final))
            whole = [pair for pair in documented if not lacks_record(*pair)]
            cache.rounds_without_record += [
                pair[0].round for pair in documented if lacks_record(*pair)
            ]
            tally = tally.with_rounds(whole)
            cache.counted += len(final)
            if len(final) < len(batch):
                break
        cache.tally = tally

    def _batches(self, first: int, newest: int) -> Iterator[list[HistoryRound]]:
        for start in range(first, newest + 1, TALLY_BATCH):
            yield self.rounds(start, min(newest, start + TALLY_BATCH - 1))

    def _documented(
        self, rounds: Iterable[HistoryRound]
    ) -> Iterator[tuple[HistoryRound, Documents]]:
        """Yield the ended rounds with their documents."""
        for round_ in rounds:
            if round_.ended is not None:
                yield round_, self.documents(round_)

    def time_of(self, block_number: int) -> int:
        """Return a block's time, in Unix seconds."""
        if block_number not in self._times:
            self._times[block_number] = self.ledger.chain.block(block_number).timestamp
        return self._times[block_number]

    def decision_call(self, round_: HistoryRound) -> DecideCall | None:
        """Return the call data that decided a round.

        Raises:
            NotServedError: the chain has another transaction in its place.
        """
        if round_.ended is None:
            raise NotServedError(f"round {round_.round} is decided, but no log says where")
        transaction = round_.ended.transaction_hash
        call = self.ledger.call_of(transaction)
        if call is not None and not isinstance(call, DecideCall):
            raise NotServedError(f"transaction 0x{transaction.hex()} does not call decide")
        return call

    def ban_report(self, recorded: RecordedEvent) -> EquivocationReport | None:
        """Return the two statements that prove a ban.

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
    def _reader(self) -> RoundReader:
        return RoundReader(
            self.ledger,
            self.fixed,
            self.to_block,
            lambda: self._registry(self.fixed.clients),
            self._bans,
        )

    def _bans(self) -> tuple[ClientBanned, ...]:
        """Return the bans up to the last block, which are read once per block."""
        cached, last = self.cache.bans, self.to_block
        if cached is not None and cached[0] == self.block_hash:
            return cached[1]
        bans = self.ledger.bans(last)
        # After a reorganisation these are the bans of another block.
        if self.block_hash is not None and self.ledger.chain.block(last).hash == self.block_hash:
            self.cache.bans = self.block_hash, bans
        return bans

    def _registry(self, count: int) -> tuple[RegisteredClient, ...]:
        """Return the first clients as they were registered.

        Raises:
            IncompleteLogsError: the logs hold fewer.
        """
        registry = self.cache.registry or self.ledger.registry()
        if len(registry) < count:
            raise IncompleteLogsError(
                self.ledger.node,
                f"the logs hold the registration of {len(registry)} clients, not of {count}",
            )
        if len(registry) == self.fixed.clients:
            self.cache.registry = registry
        return registry[:count]
