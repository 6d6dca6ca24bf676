"""An index to read from: one transaction for each reading, so that its answers are consistent."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, select

from ledger.chain.addresses import checksum, to_canonical
from ledger.history.digests import NO_CLIENT, DigestKind
from ledger.history.paths import ChainPath, DeploymentPath
from ledger.index.codes import StorageComparison
from ledger.index.database import BUSY_SECONDS, Database
from ledger.index.index_errors import IndexStoreError, NotIndexedError, damage_translated
from ledger.index.indexed_history import IndexedHistory
from ledger.index.queries import Query
from ledger.index.reading import ReadingCache, deployment_row
from ledger.index.schema import CHAIN, CLIENT, DEPLOYMENT, DIGEST, require_schema
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Connection

    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.storage.blobs import BlobReader

_DEPLOYMENTS = select(CHAIN.c.chain_id, CHAIN.c.genesis, DEPLOYMENT.c.address)
_DIGESTS = Query(
    _DEPLOYMENTS.add_columns(DIGEST.c.kind, DIGEST.c.round, DIGEST.c.client)
    .select_from(DIGEST)
    .join(DEPLOYMENT, DEPLOYMENT.c.id == DIGEST.c.deployment)
    .join(CHAIN, CHAIN.c.id == DEPLOYMENT.c.chain)
    .where(DIGEST.c.digest == bindparam("digest"))
    .order_by(DEPLOYMENT.c.id, DIGEST.c.round, DIGEST.c.kind, DIGEST.c.client)
    .limit(bindparam("most"))
)
_CLIENTS = Query(
    _DEPLOYMENTS.add_columns(CLIENT.c.client)
    .select_from(CLIENT)
    .join(DEPLOYMENT, DEPLOYMENT.c.id == CLIENT.c.deployment)
    .join(CHAIN, CHAIN.c.id == DEPLOYMENT.c.chain)
    .where(CLIENT.c.address == bindparam("address"))
    .order_by(DEPLOYMENT.c.id)
    .limit(bindparam("most"))
)
_CONTRACTS = Query(
    _DEPLOYMENTS.select_from(DEPLOYMENT)
    .join(CHAIN, CHAIN.c.id == DEPLOYMENT.c.chain)
    .where(DEPLOYMENT.c.address == bindparam("address"))
    .order_by(DEPLOYMENT.c.id)
)
_CHAINS = Query(select(CHAIN.c.chain_id).where(CHAIN.c.genesis == bindparam("digest")))
_COVERAGE = Query(
    select(DEPLOYMENT, CHAIN.c.chain_id, CHAIN.c.genesis)
    .join(CHAIN, CHAIN.c.id == DEPLOYMENT.c.chain)
    .order_by(DEPLOYMENT.c.id)
)

MAX_DIGEST_LOCATIONS = 1_000
"""Locations of one digest that are answered: w_1 of a run is that of every run of its settings."""


@dataclass(frozen=True, slots=True)
class DigestLocation:
    """An occurrence of a digest or an address.

    Attributes:
        genesis: hash of the chain's block 0.
        contract: address of the contract, 20 bytes; None for a chain's own.
        round: t; None for what belongs to the deployment.
        client: its client; None where it belongs to no client.
    """

    kind: DigestKind
    chain_id: int
    genesis: bytes
    contract: bytes | None = None
    round: int | None = None
    client: int | None = None


@dataclass(frozen=True, slots=True)
class Coverage:
    """The extent to which a deployment is indexed, and its completeness.

    Attributes:
        block: up to which the chain is read.
        final: the newest block of these that cannot be taken back.
        rounds: that have opened.
        ended: rounds 1 to here have ended, without a gap.
        head: the ledger's, recomputed from all events up to the block.
        compared: whether the contract's own storage agrees.
        waiting: rounds that miss a document.
        rewinds: how often a fork took blocks back.
    """

    path: DeploymentPath
    block: int
    final: int
    rounds: int
    ended: int
    head: Digest
    compared: StorageComparison
    waiting: int
    rewinds: int


class Index:
    """An index, read-only; safe to share between threads.

    A file that was replaced (by device and inode) is opened again.
    """

    def __init__(self, where: Path | str, *, waits_seconds: float = BUSY_SECONDS) -> None:
        """Open an index.

        Args:
            where: its SQLite file, or the URL of its PostgreSQL database.
            waits_seconds: how long a query may wait for the database.

        Raises:
            IndexStoreError: there is none, or one of another schema.
            ConfigurationError: the URL is not one of a database.
        """
        self._where = where
        self._waits_seconds = waits_seconds
        self._lock = threading.Lock()
        self._open()

    @contextmanager
    def reading(self) -> Iterator[IndexReading]:
        """Open one reading: what it sees does not move.

        Raises:
            IndexStoreError: the index cannot be read, or its content was altered.
        """
        with self._lock:
            if self._identity != self._identify():
                self._database.close()
                self._open()
            database, cache = self._database, self._cache
        with database.transaction() as connection, damage_translated():
            yield IndexReading(connection, cache)

    def close(self) -> None:
        """Give back the connections."""
        self._database.close()

    def _open(self) -> None:
        self._database = Database(self._where, waits_seconds=self._waits_seconds)
        try:
            require_schema(self._database)
        except IndexStoreError:
            self._database.close()
            raise
        self._identity = self._identify()
        self._cache = ReadingCache()

    def _identify(self) -> tuple[int, int] | None:
        return None if isinstance(self._where, str) else file_identity(self._where)


def file_identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file, None if it is not there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


@dataclass(frozen=True, slots=True)
class IndexReading:
    """One reading of an index: its answers are of one moment."""

    _connection: Connection
    _cache: ReadingCache

    def history(
        self, genesis: bytes, address: str, blobs: BlobReader, ledger: CommitteeLedger | None = None
    ) -> IndexedHistory:
        """Return the history of a deployment.

        Args:
            genesis: hash of its chain's block 0.
            address: of its contract.
            blobs: where its documents are.
            ledger: the contract, for what only the chain has; None if that is not needed.

        Raises:
            NotIndexedError: nothing of it is indexed.
        """
        row = deployment_row(self._connection, genesis, to_canonical(address))
        if row is None:
            raise NotIndexedError(
                f"{address} on the chain that begins with block 0x{genesis.hex()} is not indexed"
            )
        return IndexedHistory(self._connection, row, self._cache, blobs, ledger)

    def look_up(self, digest: bytes, limit: int = MAX_DIGEST_LOCATIONS) -> list[DigestLocation]:
        """Return the occurrences of a digest, a hash or an address, on all indexed chains.

        Args:
            digest: 32 bytes, or the 20 of an address.
            limit: how many at most.
        """
        if len(digest) == 20:
            return self._of_address(digest, limit)
        rows = _DIGESTS.rows(self._connection, {"digest": digest, "most": limit})
        chains = _CHAINS.rows(self._connection, {"digest": digest})
        return [
            *(DigestLocation(DigestKind.GENESIS, int(number), digest) for (number,) in chains),
            *(
                DigestLocation(
                    DigestKind(kind),
                    int(chain_id),
                    genesis,
                    address,
                    number or None,
                    None if client == NO_CLIENT else client,
                )
                for chain_id, genesis, address, kind, number, client in rows
            ),
        ]

    def coverage(self) -> list[Coverage]:
        """Return how far each deployment is indexed."""
        rows = _COVERAGE.mappings(self._connection, {})
        return [
            Coverage(
                path=DeploymentPath(
                    ChainPath(int(row["chain_id"]), row["genesis"]), checksum(row["address"])
                ),
                block=row["block"],
                final=row["final"],
                rounds=row["newest"],
                ended=row["ended"],
                head=Digest(row["head"]),
                compared=StorageComparison(row["compared"]),
                waiting=row["waiting"],
                rewinds=row["rewinds"],
            )
            for row in rows
        ]

    def _of_address(self, address: bytes, limit: int) -> list[DigestLocation]:
        values = {"address": address}
        locations = [
            DigestLocation(DigestKind.CONTRACT, int(chain_id), genesis, contract)
            for chain_id, genesis, contract in _CONTRACTS.rows(self._connection, values)
        ]
        clients = _CLIENTS.rows(self._connection, {**values, "most": limit})
        locations += [
            DigestLocation(DigestKind.CLIENT, int(chain_id), genesis, contract, client=client)
            for chain_id, genesis, contract, client in clients
        ]
        return locations[:limit]
