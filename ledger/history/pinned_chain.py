"""A chain at one moment, and the deployments on it: what a request speaks of."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from ledger.chain.contract.committee_ledger import CommitteeLedger
from ledger.history.chain_source import ChainSource
from ledger.history.deployments import Deployments
from ledger.history.paths import ChainPath
from ledger.history.source import SourceUnusableError
from ledger.storage.blobs import FolderBlobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ledger.chain.contract.committee_ledger import LedgerSnapshot
    from ledger.chain.ports import Block, ChainReader
    from ledger.history.chain_history import ChainHistory
    from ledger.history.deployments import RejectedManifest, ServedDeployment
    from ledger.history.locations import HistoryLocations
    from ledger.history.source import HistoryIndex, HistorySource
    from ledger.storage.blobs import BlobReader

T = TypeVar("T")


class HistoryService:
    """All that one service reads; safe to share between threads."""

    def __init__(self, places: HistoryLocations, index: HistoryIndex | None = None) -> None:
        self._source = ChainSource(places)
        self._deployments = Deployments(places)
        self._index = index
        self.blobs = FolderBlobs(places.blob_folder)
        self.largest_blob = places.largest_blob_bytes

    def now(self) -> PinnedChain:
        """Return the chain as it is now.

        Raises:
            ChainError: it is not there, damaged, another one, or unreachable.
        """
        chain, opened = self._source.chain()
        block = chain.head()
        final = chain.finalized()
        return PinnedChain(chain, opened, block, final, self._deployments, self.blobs, self._index)

    def opened(self) -> OpenedChain | None:
        """Return which chain would be read, at once; None if it is not open yet."""
        known = self._source.known()
        if known is None:
            return None
        chain, opened = known
        return OpenedChain(opened, ChainPath(chain.chain_id, chain.genesis_hash))

    def close(self) -> None:
        """Give back the file or the connections."""
        self._source.close()


@dataclass(frozen=True, slots=True)
class OpenedChain:
    """A chain that was opened.

    Attributes:
        opened: how many had been opened by then: another number, another chain.
        path: its name.
    """

    opened: int
    path: ChainPath


@dataclass(frozen=True, slots=True)
class PinnedChain:
    """A chain at one moment: nothing after `block` is read.

    Attributes:
        chain: that is read.
        opened: how many have been opened so far: another number, another chain.
        block: the newest block.
        final: number of the newest block that is regarded as final.
        blobs: where documents are.
    """

    chain: ChainReader
    opened: int
    block: Block
    final: int
    _deployments: Deployments
    blobs: BlobReader
    _index: HistoryIndex | None = None

    @property
    def path(self) -> ChainPath:
        """The chain's name."""
        return ChainPath(self.chain.chain_id, self.chain.genesis_hash)

    def deployments(self) -> tuple[list[ServedDeployment], list[RejectedManifest]]:
        """Return what is served and what is refused, each by the name of its run.

        Raises:
            ChainError: the chain cannot be read.
        """
        return self._deployments.all(self.chain)

    def find(self, address: str) -> ServedDeployment | None:
        """Return one deployment, None if none at this address is served.

        Args:
            address: of the contract, in any case of its letters.

        Raises:
            ChainError: it is no address, or the chain cannot be read.
        """
        return self._deployments.find(self.chain, address)

    def history(self, served: ServedDeployment) -> ChainHistory:
        """Return the history of a deployment up to this moment."""
        return served.history(self.blobs, self.block, self.final)

    def listed(self, served: ServedDeployment, tell: Callable[[HistorySource], T]) -> T:
        """Return what is told of a deployment up to this moment, the same whoever tells it.

        Args:
            served: the deployment.
            tell: asked of the index where it stands at this block, else of the chain; asked again
                of the chain where the index fails in the middle.
        """
        if self._index is not None:
            try:
                with self._index.history(served.ledger, self.blobs, self.block) as history:
                    if history is not None:
                        return tell(history)
            except SourceUnusableError as error:
                self._index.failed(error)
        return tell(self.history(served))

    @contextmanager
    def still(self, served: ServedDeployment) -> Iterator[CommitteeLedger]:
        """Open a deployment's contract as of this moment, with all of its events up to now."""
        with self.chain.snapshot() as view:
            ledger = served.ledger
            ledger = CommitteeLedger(view, ledger.address, ledger.from_block, served.fixed)
            yield served.complete(ledger, self.block)

    def state(self, served: ServedDeployment) -> LedgerSnapshot:
        """Return the storage of a deployment's contract at this moment."""
        return served.state(self.block.number, self.final)

    def is_unmoved(self) -> bool:
        """Say whether the chain still holds the block that was the newest."""
        if self.block.number <= self.final:
            return True
        return self.chain.block(self.block.number).hash == self.block.hash
