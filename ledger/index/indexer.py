"""The indexer of one deployment: a range of blocks in one transaction, and what a fork takes back.

A step reads the logs of a range with one query, folds them, and writes rows and position together:
who is killed at any point goes on from the last whole range. Several may run on one index: whoever
comes second finds the position moved and writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, select

from ledger.chain.addresses import to_canonical
from ledger.chain.contract.committee_ledger import CommitteeLedger
from ledger.chain.contract.plausibility import require_possible_sizes
from ledger.chain.ports import ChainMovedError, IncompleteLogsError, NotServedError
from ledger.history.digests import digests_of_deployment, digests_of_events
from ledger.index.block_range import BlockRange
from ledger.index.codes import StorageComparison
from ledger.index.comparison import LARGEST, compared
from ledger.index.errors import damage_translated
from ledger.index.forks import common_ancestor
from ledger.index.late import MissingDocuments
from ledger.index.packing import pack_fixed
from ledger.index.reading import deployment_row, events_of, registry_of
from ledger.index.rows import RoundRows
from ledger.index.standing import Standing
from ledger.index.tables import CHAIN, CHECKPOINT, DEPLOYMENT
from ledger.index.writing import Writer
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.chain.ports import Block, ChainReader
    from ledger.index.database import Database
    from ledger.storage.blobs import BlobReader

RANGE = 2_000
"""Blocks that one step reads."""


@dataclass(frozen=True, slots=True)
class IndexingProgress:
    """What one step came to.

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
        """Whether the newest block is read."""
        return self.block >= self.head


class Indexer:
    """Writes what one deployment's chain and blobs tell.

    Attributes:
        ledger: the contract.
    """

    def __init__(
        self, database: Database, ledger: CommitteeLedger, blobs: BlobReader, *, blocks: int = RANGE
    ) -> None:
        """Ask the contract for what it has fixed.

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
        self._late = MissingDocuments(database, self._fixed, blobs)
        # Where the last step ended, which the next need not read back.
        self._remembered: tuple[int, int, Standing] | None = None

    def step(self) -> IndexingProgress:
        """Read and write one range of blocks.

        Raises:
            ChainError: the chain cannot be read, or its logs are not whole; nothing is written.
            IndexStoreError: the index cannot be written, or the chain has taken back what was
                final.
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
        self._late.retry(row["id"])
        return IndexingProgress(row["block"], head.number, row["newest"])

    def _advance(
        self,
        chain: ChainReader,
        row: Mapping[str, Any],
        head: Block,
        final: int,
        before: dict[int, bytes],
    ) -> IndexingProgress:
        """Read and write the next range, which goes on from a block that must stay the same.

        Raises:
            IncompleteLogsError: the logs do not lead to the contract's own storage.
            ChainMovedError: the chain moved while they were read.
        """
        standing = self._standing(row)
        if standing is None:
            return IndexingProgress(row["block"], head.number, row["newest"])
        standing.node = chain.node
        ledger = CommitteeLedger(chain, self.ledger.address, self.ledger.from_block)
        last = chain.block(min(head.number, row["block"] + self._blocks))
        events = ledger.events(row["block"] + 1, last.number)
        for number, known in (before | {last.number: last.hash}).items():
            if chain.block(number).hash != known:
                raise ChainMovedError(chain.node, number)
        found = BlockRange(standing)
        for recorded in events:
            found.take(recorded)
        answer = (
            compared(ledger, standing, last.number) if last == head else StorageComparison.NOT_YET
        )
        if answer is StorageComparison.DIFFERENT:
            self._note_difference(row)
            raise IncompleteLogsError(
                chain.node,
                f"after block {last.number} the contract's storage does not agree with the events "
                "up to it",
            )
        blocks = {last.number: last.hash}
        blocks |= {one.block_number: one.block_hash for one in events if one.block_number > final}
        final = max(row["final"], min(final, last.number))
        is_written = self._write(row, found, _Times(chain), blocks, final, answer)
        newest = 0 if standing.current is None else standing.current.opening.round
        if is_written:
            self._remembered = last.number, row["rewinds"], standing
        return IndexingProgress(last.number, head.number, newest)

    def _write(
        self,
        row: Mapping[str, Any],
        found: BlockRange,
        times: _Times,
        blocks: dict[int, bytes],
        final: int,
        answer: StorageComparison,
    ) -> bool:
        """Write what a range adds; say whether nobody else has written it meanwhile."""
        standing, known, added = found.standing, RoundRows(), RoundRows()
        for number, events in sorted(found.rounds.items()):
            rows = known if number <= row["newest"] else added
            rows.add(self._fixed, standing.registry, events, self._blobs, times)
        with self._database.transaction() as connection:
            writer = Writer(connection, row["id"])
            if not writer.is_at(row):
                return False
            writer.put_clients(row["registered"], standing.registry[row["registered"] :])
            writer.put_bans(found.bans)
            if row["registered"] < len(standing.registry):
                writer.put_digests(digests_of_deployment(self._fixed))
            writer.put_digests(digests_of_events(found.registrations, 0))
            writer.put_again(known)
            writer.put(added)
            writer.put_checkpoints(blocks, final)
            writer.update(
                block=max(blocks),
                final=final,
                banned=row["banned"] + len(found.bans),
                compared=int(answer),
                **_standing_columns(standing),
            )
        return True

    def _rewind(self, row: Mapping[str, Any], shared: int, head: Block) -> IndexingProgress:
        """Forget what the chain has taken back."""
        self._remembered = None
        with self._database.transaction() as connection, damage_translated():
            writer = Writer(connection, row["id"])
            if not writer.is_at(row):
                return IndexingProgress(row["block"], head.number, row["newest"])
            standing = writer.rewind(self._fixed, shared)
            rows, current = RoundRows(), standing.current
            if current is not None:
                time = current.ended_time or 0
                rows.add(self._fixed, standing.registry, current, self._blobs, lambda _: time)
            writer.put(rows)
            block = row["from_block"] - 1 if current is None else shared
            writer.update(
                block=block,
                banned=sum(client.banned_in > 0 for client in standing.registry),
                rewinds=row["rewinds"] + 1,
                compared=int(StorageComparison.NOT_YET),
                **_standing_columns(standing),
            )
        newest = 0 if current is None else current.opening.round
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
            found = connection.execute(chosen.order_by(CHECKPOINT.c.block.desc())).all()
        return row, [(one.block, one.hash) for one in found]

    def _begin(self, connection: Connection, chain: ChainReader, address: bytes) -> None:
        """Write a deployment of which nothing is read yet."""
        known = select(CHAIN.c.id).where(CHAIN.c.genesis == chain.genesis_hash)
        number = connection.execute(known).scalar()
        if number is None:
            values = {"chain_id": str(chain.chain_id), "genesis": chain.genesis_hash}
            made = connection.execute(insert(CHAIN).values(values).returning(CHAIN.c.id))
            number = made.scalar_one()
        start = self.ledger.from_block - 1
        connection.execute(
            insert(DEPLOYMENT).values(
                chain=number,
                address=address,
                from_block=self.ledger.from_block,
                fixed=pack_fixed(self._fixed),
                block=start,
                final=start,
                newest=0,
                ended=0,
                head=self._fixed.config,
                registered=0,
                banned=0,
                rewinds=0,
                compared=int(StorageComparison.NOT_YET),
            )
        )

    def _standing(self, row: Mapping[str, Any]) -> Standing | None:
        """Return where the deployment stands in the index; None if another has moved it."""
        remembered, self._remembered = self._remembered, None
        if remembered is not None and remembered[:2] == (row["block"], row["rewinds"]):
            return remembered[2]
        with self._database.transaction() as connection, damage_translated():
            if not Writer(connection, row["id"]).is_at(row):
                return None
            registry = registry_of(connection, row["id"])
            head, fixed = Digest(row["head"]), self._fixed
            if row["newest"] == 0:
                # The last batch of clients opens round 1, or ends a ledger that draws no committee.
                number = int(len(registry) == fixed.clients)
                return Standing(fixed, registry, head, number)
            current = events_of(connection, row["id"], row["newest"])
            return Standing.of(fixed, registry, head, current)

    def _note_difference(self, row: Mapping[str, Any]) -> None:
        with self._database.transaction() as connection:
            writer = Writer(connection, row["id"])
            if writer.is_at(row):
                writer.update(compared=int(StorageComparison.DIFFERENT))


def _standing_columns(standing: Standing) -> dict[str, object]:
    current = standing.current
    newest = 0 if current is None else current.opening.round
    is_over = current is not None and current.ended is not None
    return {
        "newest": newest,
        "ended": newest if is_over else max(0, newest - 1),
        "head": standing.head,
        "registered": len(standing.registry),
    }


class _Times:
    """The times of the blocks that end rounds, from headers whose hashes are the logs'."""

    def __init__(self, chain: ChainReader) -> None:
        self._chain = chain

    def __call__(self, recorded: RecordedEvent) -> int:
        block = self._chain.block(recorded.block_number)
        if block.hash != recorded.block_hash:
            raise NotServedError(
                f"block {block.number} became another one while the logs of it were read"
            )
        if block.timestamp > LARGEST:
            raise NotServedError(
                f"block {block.number} is said to be of second {block.timestamp}: no clock is"
            )
        return block.timestamp
