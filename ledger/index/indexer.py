"""The indexer of one deployment: it reads ranges of blocks, and takes back what a fork removed.

A step reads the logs of a range with one query, folds them, and writes rows and position in one
transaction, so an indexer that was killed goes on from the last whole range. Several may run on one
index: the later one finds the position moved and writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, insert, select

from ledger.chain.addresses import to_canonical
from ledger.chain.contract.committee_ledger import CommitteeLedger
from ledger.chain.contract.complete_log import storage_difference
from ledger.chain.contract.event_logs import require_possible_event, require_possible_sizes
from ledger.chain.ports import ChainMovedError, IncompleteLogsError, NotServedError
from ledger.history.digests import digests_of_deployment, digests_of_events
from ledger.history.documents import read_documents
from ledger.index.codes import StorageComparison
from ledger.index.index_errors import FinalBlockChangedError, damage_translated
from ledger.index.reading import deployment_row, events_of, registry_of
from ledger.index.row_documents import (
    RoundEvents,
    document_states,
    pack_deployment,
    pack_view,
    unpack_view,
)
from ledger.index.schema import CHAIN, CHECKPOINT, DEPLOYMENT, MISSING
from ledger.index.writing import RoundRows, Writer
from ledger.protocol.fold import LedgerView, RoundStart
from ledger.protocol.ledger_state import (
    ClientBanned,
    ClientsRegistered,
    LedgerDeployed,
    LedgerOpened,
    LedgerStage,
    RoundAbandoned,
    RoundDecided,
)
from ledger.protocol.types import NO_DIGEST

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.chain.ports import Block, ChainReader
    from ledger.index.database import Database
    from ledger.storage.blobs import BlobReader

BLOCKS_PER_STEP = 2_000
MAX_INTEGER = 2**63 - 1
"""The largest integer of a column."""
MAX_RETRIED = 64
"""Rounds whose missing documents one step looks for."""

_NEXT_MISSING = (
    select(MISSING.c.round, MISSING.c.record, MISSING.c.incidents)
    .where(MISSING.c.deployment == bindparam("of"), MISSING.c.round > bindparam("after"))
    .order_by(MISSING.c.round)
    .limit(MAX_RETRIED)
)


@dataclass(frozen=True, slots=True)
class IndexingProgress:
    """The result of one step.

    Attributes:
        block: up to which the chain is read.
        head: its newest block.
        rounds: that have opened.
        rewound: whether a fork has taken blocks back.
    """

    block: int
    head: int
    rounds: int
    rewound: bool = False

    @property
    def is_done(self) -> bool:
        """True once the newest block is read."""
        return self.block >= self.head


@dataclass(slots=True)
class _BlockRange:
    """A deployment while the events of a range of blocks are folded.

    Attributes:
        view: the contract's state.
        current: the newest round that has opened; None before the first.
        node: asked for the events; None for a file.
        rounds: all events of the rounds that the range adds to, by number.
        registrations: events of the registration, and the ledger's opening.
        bans: round and block of each, by client.
    """

    view: LedgerView
    current: RoundEvents | None
    node: str | None
    rounds: dict[int, RoundEvents] = field(default_factory=dict)
    registrations: list[RecordedEvent] = field(default_factory=list)
    bans: dict[int, tuple[int, int]] = field(default_factory=dict)

    def take(self, recorded: RecordedEvent) -> None:
        """Fold the next event.

        Raises:
            NotServedError: a contract of these sizes cannot log it.
            IncompleteLogsError: it does not follow from those before it.
        """
        require_possible_event(recorded, self.view.deployment)
        self._require_expected(recorded)
        event, number = recorded.event, self.view.round
        self.view = self.view.after(event, recorded.block_number)
        match event:
            case LedgerDeployed():
                return
            case ClientsRegistered():
                self.registrations.append(recorded)
                return
            case LedgerOpened():
                self.registrations.append(recorded)
            case ClientBanned(_, client, _):
                self.bans[client] = number, recorded.block_number
            case _:
                pass
        # After a ledger has ended for want of clients, bans are of a round that never began.
        if self.current is not None and self.current.start.round == number:
            self.rounds[number] = self.current
            if isinstance(event, RoundDecided | RoundAbandoned):
                self.current.ended = recorded
            else:
                self.current.activity.append(recorded)
        start = RoundStart.of(event, recorded.block_number)
        if start is not None and self.view.stage is LedgerStage.OPEN:
            self.current = RoundEvents(start, self.view.head, self.view.model)
            self.rounds[start.round] = self.current

    def columns(self) -> dict[str, object]:
        """Return the columns of the deployment that follow from its state."""
        newest = 0 if self.current is None else self.current.start.round
        is_over = self.current is not None and self.current.ended is not None
        return {
            "view": pack_view(self.view),
            "newest": newest,
            "ended": newest if is_over else max(0, newest - 1),
            "head": self.view.head,
            "registered": len(self.view.registry),
            "banned": sum(client.banned_in > 0 for client in self.view.registry),
        }

    def _require_expected(self, recorded: RecordedEvent) -> None:
        event, view = recorded.event, self.view
        expected = view.expected_fields(event)
        fields = {name: getattr(event, name) for name in expected}
        if isinstance(event, LedgerOpened):
            fields["clients"], expected["clients"] = len(view.registry), view.deployment.clients
        for name, value in fields.items():
            if value != expected[name]:
                raise IncompleteLogsError(
                    self.node,
                    f"block {recorded.block_number} is said to hold a {type(event).__name__} with "
                    f"{name} {_shown(value)}, where {_shown(expected[name])} follows from the "
                    "events before",
                )


class Indexer:
    """Writes one deployment's chain and blobs into the index."""

    def __init__(
        self,
        database: Database,
        ledger: CommitteeLedger,
        blobs: BlobReader,
        *,
        blocks: int = BLOCKS_PER_STEP,
    ) -> None:
        """Ask the contract for what was fixed at deployment.

        Args:
            database: open for writing, with the schema of this program.
            ledger: the contract.
            blobs: where its documents are.
            blocks: how many a step reads.

        Raises:
            ChainError: the contract cannot be asked.
        """
        self.ledger = ledger
        self._database = database
        self._blobs = blobs
        self._blocks = blocks
        self._fixed = ledger.deployment()
        require_possible_sizes(self._fixed)
        # The end of the last step, so that the next one does not read it back.
        self._last: tuple[int, int, LedgerView, RoundEvents | None] | None = None
        self._retried_to = 0

    def step(self) -> IndexingProgress:
        """Read and write one range of blocks.

        Raises:
            ChainError: the chain cannot be read, or its logs are incomplete; nothing is written.
            IndexStoreError: the index cannot be written, or the chain has taken back a final block.
        """
        with self.ledger.chain.snapshot() as chain:
            head, final = chain.head(), chain.finalized()
            row, checkpoints = self._position(chain)
            start = row["from_block"] - 1
            shared = common_ancestor(chain, head, checkpoints, final=row["final"], start=start)
            if shared is not None:
                return self._rewind(row, shared, head)
            if head.number > row["block"]:
                return self._advance(chain, row, head, final, dict(checkpoints[:1]))
        self._retry_missing(row["id"])
        return IndexingProgress(row["block"], head.number, row["newest"])

    def _advance(
        self,
        chain: ChainReader,
        row: Mapping[str, Any],
        head: Block,
        final: int,
        before: dict[int, bytes],
    ) -> IndexingProgress:
        """Read and write the next range, after blocks that must stay the same.

        Raises:
            IncompleteLogsError: the logs do not lead to the contract's own storage.
            ChainMovedError: the chain moved while they were read.
        """
        state = self._state(row)
        if state is None:
            return IndexingProgress(row["block"], head.number, row["newest"])
        block_range = _BlockRange(*state, chain.node)
        ledger = CommitteeLedger(chain, self.ledger.address, self.ledger.from_block)
        last = chain.block(min(head.number, row["block"] + self._blocks))
        events = ledger.events(row["block"] + 1, last.number)
        for number, known_hash in (before | {last.number: last.hash}).items():
            if chain.block(number).hash != known_hash:
                raise ChainMovedError(chain.node, number)
        for recorded in events:
            block_range.take(recorded)
        comparison = StorageComparison.NOT_YET
        if last == head:
            comparison = self._compare(ledger, row, block_range.view, last.number)
        blocks = {last.number: last.hash}
        blocks |= {
            recorded.block_number: recorded.block_hash
            for recorded in events
            if recorded.block_number > final
        }
        final = max(row["final"], min(final, last.number))
        if self._write(row, block_range, _BlockTimes(chain), blocks, final, comparison):
            self._last = last.number, row["rewinds"], block_range.view, block_range.current
        newest = 0 if block_range.current is None else block_range.current.start.round
        return IndexingProgress(last.number, head.number, newest)

    def _compare(
        self, ledger: CommitteeLedger, row: Mapping[str, Any], view: LedgerView, number: int
    ) -> StorageComparison:
        """Compare the events with the contract's storage: then no event is missing.

        Raises:
            IncompleteLogsError: they disagree.
        """
        try:
            storage = ledger.state(number)
        except NotServedError:
            return StorageComparison.NOT_YET  # a node need not keep the state of older blocks
        difference = storage_difference(view, storage)
        if difference is None:
            return StorageComparison.EQUAL
        with self._database.transaction() as connection:
            writer = Writer(connection, row["id"])
            if writer.is_at(row):
                writer.update(compared=int(StorageComparison.DIFFERENT))
        raise IncompleteLogsError(ledger.chain.node, f"up to block {number} {difference}")

    def _write(
        self,
        row: Mapping[str, Any],
        block_range: _BlockRange,
        times: _BlockTimes,
        blocks: dict[int, bytes],
        final: int,
        comparison: StorageComparison,
    ) -> bool:
        """Write what a range adds; return False if another process has written it meanwhile."""
        registry, rewritten, added = block_range.view.registry, RoundRows(), RoundRows()
        for number, events in sorted(block_range.rounds.items()):
            rows = rewritten if number <= row["newest"] else added
            rows.add(self._fixed, registry, events, self._blobs, times)
        with self._database.transaction() as connection:
            writer = Writer(connection, row["id"])
            if not writer.is_at(row):
                return False
            writer.put_clients(row["registered"], registry[row["registered"] :])
            writer.put_bans(block_range.bans)
            if row["registered"] < len(registry):
                writer.put_digests(digests_of_deployment(self._fixed))
            writer.put_digests(digests_of_events(block_range.registrations, 0))
            writer.replace(rewritten)
            writer.put(added)
            writer.put_checkpoints(blocks, final)
            writer.update(
                block=max(blocks),
                final=final,
                compared=int(comparison),
                **block_range.columns(),
            )
        return True

    def _rewind(self, row: Mapping[str, Any], shared: int, head: Block) -> IndexingProgress:
        """Forget what the chain has taken back: all after a block that it still has."""
        self._last = None
        with self._database.transaction() as connection, damage_translated():
            writer = Writer(connection, row["id"])
            if not writer.is_at(row):
                return IndexingProgress(row["block"], head.number, row["newest"])
            block = row["from_block"] - 1
            current, rows = writer.newest_opened_by(shared), RoundRows()
            if current is None:
                writer.forget_all()
                view = LedgerView.at_deployment(self._fixed)
            else:
                block = shared
                number = current.start.round
                writer.forget_after(shared, number, self._fixed.clients)
                registry = registry_of(connection, row["id"])
                stored = unpack_view(row["view"], self._fixed, registry)
                view = _view_after(current, stored)
                if view.round > number:
                    # Bans of a round that never began are in no round's events: read them again.
                    assert current.ended is not None, "another round is counted"
                    block, current.ended = current.ended.block_number - 1, None
                    current.activity = [e for e in current.activity if e.block_number <= block]
                    view = _view_after(current, stored)
                    writer.forget_bans_after(block)
                time_of = partial(_stored_time, current.ended_time or 0)
                rows.add(self._fixed, view.registry, current, self._blobs, time_of)
            writer.put(rows)
            columns = _BlockRange(view, current, None).columns()
            writer.update(
                block=block,
                rewinds=row["rewinds"] + 1,
                compared=int(StorageComparison.NOT_YET),
                **columns,
            )
        newest = 0 if current is None else current.start.round
        return IndexingProgress(block, head.number, newest, rewound=True)

    def _position(self, chain: ChainReader) -> tuple[dict[str, Any], list[tuple[int, bytes]]]:
        """Return the deployment's row, which is made if need be, and its checkpoints."""
        address = to_canonical(self.ledger.address)
        with self._database.transaction() as connection, damage_translated():
            row = deployment_row(connection, chain.genesis_hash, address)
            if row is None:
                self._begin(connection, chain, address)
                row = deployment_row(connection, chain.genesis_hash, address)
            assert row is not None, "it was written in this transaction"
            chosen = select(CHECKPOINT.c.block, CHECKPOINT.c.hash)
            chosen = chosen.where(CHECKPOINT.c.deployment == row["id"])
            checkpoints = connection.execute(chosen.order_by(CHECKPOINT.c.block.desc())).all()
        return row, [(checkpoint.block, checkpoint.hash) for checkpoint in checkpoints]

    def _begin(self, connection: Connection, chain: ChainReader, address: bytes) -> None:
        """Write a deployment of which nothing is read yet."""
        existing = select(CHAIN.c.id).where(CHAIN.c.genesis == chain.genesis_hash)
        number = connection.execute(existing).scalar()
        if number is None:
            values = {"chain_id": str(chain.chain_id), "genesis": chain.genesis_hash}
            made = connection.execute(insert(CHAIN).values(values).returning(CHAIN.c.id))
            number = made.scalar_one()
        start = self.ledger.from_block - 1
        empty = _BlockRange(LedgerView.at_deployment(self._fixed), None, None)
        connection.execute(
            insert(DEPLOYMENT).values(
                chain=number,
                address=address,
                from_block=self.ledger.from_block,
                fixed=pack_deployment(self._fixed),
                block=start,
                final=start,
                rewinds=0,
                compared=int(StorageComparison.NOT_YET),
                **empty.columns(),
            )
        )

    def _state(self, row: Mapping[str, Any]) -> tuple[LedgerView, RoundEvents | None] | None:
        """Return the contract's state and newest round in the index; None if another moved it."""
        last, self._last = self._last, None
        if last is not None and last[:2] == (row["block"], row["rewinds"]):
            return last[2:]
        with self._database.transaction() as connection, damage_translated():
            if not Writer(connection, row["id"]).is_at(row):
                return None
            view = unpack_view(row["view"], self._fixed, registry_of(connection, row["id"]))
            if row["newest"] == 0:
                return view, None
            current = events_of(connection, row["id"], row["newest"])
            if view.stage is LedgerStage.OPEN:
                view = replace(view, mined=current.mined)
            return view, current

    def _retry_missing(self, deployment: int) -> None:
        """Look for the missing documents of the next few rounds, and index those that have come.

        Raises:
            IndexStoreError: the index cannot be written.
        """
        with self._database.transaction() as connection, damage_translated():
            values = {"of": deployment, "after": self._retried_to}
            missing = connection.execute(_NEXT_MISSING, values).all()
            if not missing:
                self._retried_to = 0
                return
            self._retried_to = missing[-1].round
            registry, rows = registry_of(connection, deployment), RoundRows()
            for row in missing:
                events = events_of(connection, deployment, row.round)
                documents = read_documents(self._blobs, events.line(self._fixed, registry))
                if document_states(documents, is_decided=True) != (row.record, row.incidents):
                    time_of = partial(_stored_time, events.ended_time or 0)
                    rows.add(self._fixed, registry, events, self._blobs, time_of)
            Writer(connection, deployment).replace(rows)


def common_ancestor(
    chain: ChainReader,
    head: Block,
    checkpoints: Sequence[tuple[int, bytes]],
    *,
    final: int,
    start: int,
) -> int | None:
    """Return the newest block known to be on the chain still, None if nothing was taken back.

    A block's hash commits to all blocks before it, so one that is still there vouches for them. A
    chain that is shorter than what was read takes nothing back: a node may be behind.

    Args:
        chain: as it is now.
        head: its newest block.
        checkpoints: numbers and hashes of blocks that were read, the newest first.
        final: the newest block that the chain has called final.
        start: the block before the deployment's.

    Raises:
        NotServedError: the chain ends before what it has called final.
        FinalBlockChangedError: it has another block there.
    """
    if head.number < min(final, max((number for number, _ in checkpoints), default=start)):
        raise NotServedError(
            f"the chain ends with block {head.number}, and block {final} was final before: the "
            "node is far behind, or the chain was rolled back"
        )
    reached = [checkpoint for checkpoint in checkpoints if checkpoint[0] <= head.number]
    for place, (number, known_hash) in enumerate(reached):
        block_hash = head.hash if number == head.number else chain.block(number).hash
        if block_hash == known_hash:
            return None if place == 0 else number
        if number <= final:
            raise FinalBlockChangedError(
                f"block {number} was final with hash 0x{known_hash.hex()}, and is "
                f"0x{block_hash.hex()} now: the index is of another chain, or the chain was rolled "
                "back; run cmfl index rebuild"
            )
    return start if reached else None


def _view_after(events: RoundEvents, stored: LedgerView) -> LedgerView:
    """Return the contract's state after a round's events.

    Args:
        events: of the newest round that is not taken back.
        stored: a later state, with the bans that are not taken back.
    """
    start = events.start
    view = replace(
        stored,
        stage=LedgerStage.OPEN,
        round=start.round,
        opened_block=start.opened_block,
        seed=start.seed,
        committee=start.committee,
        model=events.model,
        head=events.head,
        registry=tuple(
            client if client.banned_in < start.round else replace(client, banned_in=0)
            for client in stored.registry
        ),
        mined=(),
        commitments=NO_DIGEST,
    )
    for recorded in events.all:
        view = view.after(recorded.event, recorded.block_number)
    return view


def _stored_time(time: int, _recorded: RecordedEvent) -> int:
    """Return a block's time that was stored with its round."""
    return time


def _shown(value: object) -> str:
    return f"0x{value.hex()}" if isinstance(value, bytes) else str(value)


class _BlockTimes:
    """Times of the blocks that end rounds, from headers whose hashes are the logs'."""

    def __init__(self, chain: ChainReader) -> None:
        self._chain = chain

    def __call__(self, recorded: RecordedEvent) -> int:
        block = self._chain.block(recorded.block_number)
        if block.hash != recorded.block_hash:
            raise NotServedError(
                f"block {block.number} became another one while the logs of it were read"
            )
        if block.timestamp > MAX_INTEGER:
            raise NotServedError(
                f"block {block.number} is said to be of second {block.timestamp}: no clock is"
            )
        return block.timestamp
