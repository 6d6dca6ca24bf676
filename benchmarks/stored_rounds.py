"""Generated rounds behind the service: their logs in SQLite, found as a chain file finds them.

Blocks and the contract's storage come from the generated chain in memory; what a real chain file
would add is the reading of a header for each block that is named, and the EVM for `state()`.
"""

from __future__ import annotations

import sqlite3
import threading
from typing import TYPE_CHECKING

from benchmarks.generated_rounds import ADDRESS, GeneratedChain
from ledger.chain.addresses import to_canonical
from ledger.chain.contract.manifest import Manifest
from ledger.chain.embedded.evm_values import log_of_row
from ledger.chain.embedded.file import log_table
from ledger.chain.ports import OfflineChain
from ledger.history.deployments import Deployments, ServedDeployment
from ledger.history.paths import ChainPath
from ledger.history.pinned_chain import HistoryService, OpenedChain, PinnedChain

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from api.settings import Settings
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.chain.ports import Block, ChainReader, Log, Receipt, TopicFilter, Transaction
    from ledger.history.deployments import RejectedManifest
    from ledger.history.source import HistoryIndex
    from ledger.storage.blobs import BlobReader


def write_logs(chain: GeneratedChain, path: Path) -> None:
    """Write the logs of a generated chain into a file, with the indexes of a chain file.

    Args:
        chain: whose logs.
        path: a file that is not there yet.
    """
    newest = chain.head().number
    with sqlite3.connect(path) as connection:
        connection.executescript(log_table.CREATE)
        rows = (_row(log) for log in chain.logs(None, [], 0, newest))
        connection.executemany(log_table.INSERT, rows)
    connection.close()


def _row(log: Log) -> log_table.LogRow:
    topics = [*log.topics, None, None, None, None][:4]
    place = log_table.row_id(log.block_number, log.log_index)
    return (place, log.transaction_hash, to_canonical(log.address), *topics, log.data)  # type: ignore[return-value]


class StoredChain(OfflineChain):
    """A generated chain whose logs are read from a file."""

    def __init__(self, chain: GeneratedChain, path: Path) -> None:
        self._chain = chain
        self._logs = sqlite3.connect(path, check_same_thread=False)
        self._lock = threading.Lock()
        self.chain_id, self.genesis_hash = chain.chain_id, chain.genesis_hash

    def head(self) -> Block:
        """Return the newest block."""
        return self._chain.head()

    def block(self, number: int) -> Block:
        """Return one block."""
        return self._chain.block(number)

    def finalized(self) -> int:
        """Return the number of the newest final block."""
        return self._chain.finalized()

    def call(self, to: str, data: bytes, block_number: int | None = None) -> bytes:
        """Return what the contract answers."""
        return self._chain.call(to, data, block_number)

    def code(self, address: str) -> bytes:
        """Return no code."""
        return self._chain.code(address)

    def transaction(self, transaction_hash: bytes) -> Transaction:
        """Refuse: there are no transactions."""
        return self._chain.transaction(transaction_hash)

    def receipt(self, transaction_hash: bytes) -> Receipt | None:
        """Return no receipt."""
        return self._chain.receipt(transaction_hash)

    def logs(
        self,
        address: str | None,
        topics: Sequence[TopicFilter],
        from_block: int,
        to_block: int,
        limit: int | None = None,
        *,
        descending: bool = False,
    ) -> list[Log]:
        """Return the logs that match, by the queries of a chain file."""
        contract = to_canonical(address) if address is not None else None
        query = log_table.select(
            contract, topics, from_block, to_block, limit=limit, descending=descending
        )
        if query is None:
            return []
        with self._lock:
            rows = self._logs.execute(*query).fetchall()
        numbers = {log_table.position(row[0])[0] for row in rows}
        hashes = {number: self._chain.block(number).hash for number in numbers}
        return [log_of_row(row, hashes) for row in rows]

    def close(self) -> None:
        """Close the file."""
        self._logs.close()


class StoredHistories(HistoryService):
    """A service's source: one deployment of one stored chain."""

    def __init__(
        self,
        settings: Settings,
        index: HistoryIndex | None,
        chain: ChainReader,
        ledger: CommitteeLedger,
        blobs: BlobReader,
    ) -> None:
        super().__init__(settings, index)
        self._published = blobs
        fixed = ledger.deployment()
        manifest = Manifest(
            run="generated",
            configuration="",
            chain_id=chain.chain_id,
            genesis_hash=f"0x{chain.genesis_hash.hex()}",
            address=ADDRESS,
            salt=f"0x{ledger.domain().salt.hex()}",
            transaction="",
            block=1,
            deployer=ADDRESS,
            compiler="",
            bytecode_sha256="",
            sources={},
            config=f"0x{fixed.config.hex()}",
            arguments={},
        )
        self._served = _One(settings, ServedDeployment("generated", manifest, ledger, fixed))
        self._chain, self._beside = chain, index

    def now(self) -> PinnedChain:
        """Return the chain."""
        chain = self._chain
        block, final = chain.head(), chain.finalized()
        return PinnedChain(chain, 1, block, final, self._served, self._published, self._beside)

    def opened(self) -> OpenedChain:
        """Return which chain is read."""
        return OpenedChain(1, ChainPath(self._chain.chain_id, self._chain.genesis_hash))


class _One(Deployments):
    """One deployment, which needs no check."""

    def __init__(self, settings: Settings, served: ServedDeployment) -> None:
        super().__init__(settings)
        self._one = served

    def find(self, chain: ChainReader, address: str) -> ServedDeployment | None:  # noqa: ARG002
        """Return the deployment."""
        return self._one

    def all(self, chain: ChainReader) -> tuple[list[ServedDeployment], list[RejectedManifest]]:  # noqa: ARG002
        """Return it alone."""
        return [self._one], []
