"""The index of a service: read where it is at the block of the answer."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ledger.index.codes import IndexState
from ledger.index.index import Index
from ledger.index.index_errors import IndexStaleError, NotIndexedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.chain.ports import Block
    from ledger.history.source import HistorySource, SourceUnusableError
    from ledger.index.index import Coverage
    from ledger.storage.blobs import BlobReader


LEFT_ALONE_SECONDS = 5.0
"""Time for which an index that failed is not tried again: lists come from the chain."""

WAITED_SECONDS = 0.5
"""How long a reading waits for a locked file before the chain is asked."""

_log = logging.getLogger(__name__)


class ServiceIndex:
    """An index, or the place where one may appear; see `HistoryIndex`."""

    def __init__(self, where: Path | str, *, is_asked_for: bool = True) -> None:
        """Take note of a place; nothing is opened yet.

        Args:
            where: an SQLite file, or the URL of a PostgreSQL database.
            is_asked_for: whether a file that is not there is missed.
        """
        self._where = where
        self._is_asked_for = is_asked_for
        self._lock = threading.Lock()
        self._index: Index | None = None
        self._rests_until = 0.0

    @contextmanager
    def history(
        self, ledger: CommitteeLedger, blobs: BlobReader, block: Block
    ) -> Iterator[HistorySource | None]:
        """Open the history of a deployment as of one block.

        Args:
            ledger: the contract.
            blobs: where the documents are.
            block: as of which.

        Yields:
            The history; None where the index is at another block, or unused.

        Raises:
            SourceUnusableError: the index cannot be read.
        """
        if self.standing() is not IndexState.READ:
            yield None
            return
        with self._opened().reading() as reading:
            try:
                history = reading.history(ledger.chain.genesis_hash, ledger.address, blobs, ledger)
            except NotIndexedError:
                yield None
                return
            yield history if history.stands_at(block) else None

    def standing(self) -> IndexState:
        """Return the state of the index."""
        if not (self._is_asked_for or isinstance(self._where, str) or self._where.exists()):
            return IndexState.NONE
        is_left = time.monotonic() < self._rests_until
        return IndexState.LEFT_ALONE if is_left else IndexState.READ

    def coverage(self) -> list[Coverage]:
        """Return how far each deployment is indexed; nothing while the index is left alone.

        Raises:
            IndexStoreError: the index cannot be read.
        """
        if self.standing() is not IndexState.READ:
            return []
        with self._opened().reading() as reading:
            return reading.coverage()

    def failed(self, error: SourceUnusableError) -> None:
        """Leave the index alone for a while, and say why."""
        if isinstance(error, IndexStaleError):
            return
        self._rests_until = time.monotonic() + LEFT_ALONE_SECONDS
        _log.warning("lists come from the chain, for the index cannot be read: %s", error)
        self.close()

    def close(self) -> None:
        """Give back the connections; the next reading opens the index again."""
        with self._lock:
            index, self._index = self._index, None
        if index is not None:
            index.close()

    def _opened(self) -> Index:
        with self._lock:
            if self._index is None:
                self._index = Index(self._where, waits_seconds=WAITED_SECONDS)
            return self._index
