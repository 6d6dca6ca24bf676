"""A chain as of one block, with its deployments: the context of a request."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ledger.chain.contract.ledger import CommitteeLedger, LedgerSnapshot
from ledger.chain.embedded.embedded_reader import EmbeddedReader
from ledger.chain.ports import Block, ChainReader, ChainUnreachableError
from ledger.chain.rpc.node import RpcReader, RpcSettings
from ledger.history.deployments import (
    Deployments,
    HistoryLocations,
    RejectedManifest,
    ServedDeployment,
)
from ledger.history.history import FoldedHistory
from ledger.history.paths import ChainPath
from ledger.storage.blobs import BlobReader, FolderBlobs


class HistoryService:
    """Chain, deployments and blobs of one service; safe to share between threads."""

    def __init__(self, places: HistoryLocations) -> None:
        self._source = ChainSource(places)
        self._deployments = Deployments(places)
        self.blobs = FolderBlobs(places.blob_folder)
        self.largest_blob = places.largest_blob_bytes

    def now(self) -> PinnedChain:
        """Return the chain as of its newest block."""
        chain, opened = self._source.chain()
        block = chain.head()
        final = chain.finalized()
        return PinnedChain(chain, opened, block, final, self._deployments, self.blobs)

    def close(self) -> None:
        """Close the file or the connections."""
        self._source.close()


@dataclass(frozen=True, slots=True)
class PinnedChain:
    """A chain as of `block`: later blocks are not read.

    Attributes:
        opened: its number; a replaced chain has another.
    """

    chain: ChainReader
    opened: int
    block: Block
    final: int
    _deployments: Deployments
    blobs: BlobReader

    @property
    def path(self) -> ChainPath:
        """The chain's name."""
        return ChainPath(self.chain.chain_id, self.chain.genesis_hash)

    def deployments(self) -> tuple[list[ServedDeployment], list[RejectedManifest]]:
        """Return the served deployments and the rejected manifests, by the names of their runs."""
        return self._deployments.all(self.chain)

    def find(self, address: str) -> ServedDeployment | None:
        """Return one deployment by its address; None if none is served there."""
        return self._deployments.find(self.chain, address)

    def history(self, served: ServedDeployment) -> FoldedHistory:
        """Return the history of a deployment as of this block."""
        self._deployments.use(served)
        return served.history(self.blobs, self.block, self.final)

    @contextmanager
    def snapshot(self, served: ServedDeployment) -> Iterator[CommitteeLedger]:
        """Open a deployment's contract as of this block, with all of its events."""
        with self.chain.snapshot() as view:
            ledger = served.ledger
            ledger = CommitteeLedger(view, ledger.address, ledger.from_block, served.fixed)
            yield served.complete(ledger, self.block)

    def state(self, served: ServedDeployment) -> LedgerSnapshot:
        """Return the storage of a deployment's contract."""
        return served.state(self.block.number, self.final)

    def is_unmoved(self) -> bool:
        """Return whether the chain still contains the block."""
        if self.block.number <= self.final:
            return True
        return self.chain.block(self.block.number).hash == self.block.hash


class ChainSource:
    """Opens the chain read-only; safe to share between threads.

    A service may start before the chain exists, and its home may be replaced: device and inode
    identify a chain file, and another file is opened as another chain.
    """

    def __init__(self, locations: HistoryLocations) -> None:
        self._locations = locations
        self._file = locations.chain_file
        self._lock = threading.Lock()
        self._chain: ChainReader | None = None
        self._identity: tuple[int, int] | None = None
        self._opened = 0

    def chain(self) -> tuple[ChainReader, int]:
        """Return the open chain, and its number: a replaced chain has another."""
        identity = self._identify()
        with self._lock:
            if self._chain is None or identity != self._identity:
                self._close()
                self._chain, self._identity = self._open(), identity
                self._opened += 1
            return self._chain, self._opened

    def close(self) -> None:
        """Close the file or the connections."""
        with self._lock:
            self._close()

    def _identify(self) -> tuple[int, int] | None:
        if self._locations.rpc_url is not None:
            return None
        try:
            status = self._file.stat()
        except OSError as error:
            raise ChainUnreachableError(
                f"{self._file.name} cannot be opened: {error.strerror}"
            ) from error
        return status.st_dev, status.st_ino

    def _open(self) -> ChainReader:
        locations = self._locations
        if locations.rpc_url is None or locations.chain_id is None:
            return EmbeddedReader.open(self._file)
        settings = RpcSettings(request_timeout_seconds=locations.rpc_timeout_seconds)
        return RpcReader(locations.rpc_url, chain_id=locations.chain_id, settings=settings)

    def _close(self) -> None:
        if self._chain is not None:
            self._chain.close()
        self._chain = None
