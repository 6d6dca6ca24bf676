"""Indexers that follow their chains: once, until interrupted, or in a thread of a service."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from ledger.index.database import Database
from ledger.index.index import file_identity
from ledger.index.indexer import Indexer
from ledger.index.schema import SCHEMA_NUMBER, make_schema
from ledger.protocol.errors import CmflError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from ledger.history.pinned_chain import HistoryService
    from ledger.index.indexer import IndexingProgress

PAUSE_SECONDS = 0.25
"""Between two polls of the head; until then lists come from the chain."""

RETRY_SECONDS = 5.0
"""Pause after the database could not be opened."""

STOP_SECONDS = 10.0
"""How long a service waits for the step that is under way."""

_log = logging.getLogger(__name__)


def catch_up(
    indexer: Indexer, progress: Callable[[IndexingProgress], None] = lambda _: None
) -> IndexingProgress:
    """Step until the newest block is read; return the last step's result.

    Args:
        indexer: of a deployment.
        progress: called after each step.

    Raises:
        ChainError: the chain cannot be read, or its logs are incomplete.
        IndexStoreError: the index cannot be written.
    """
    while True:
        result = indexer.step()
        progress(result)
        if result.is_done and not result.rewound:
            return result


def follow(
    indexers: Callable[[], Iterable[Indexer]],
    stop: threading.Event,
    *,
    pause_seconds: float = 1.0,
    on_error: Callable[[CmflError], None] = lambda _: None,
) -> None:
    """Keep indexes up with their chains until `stop` is set.

    A chain that does not answer, or an index that is busy, is tried again after the pause.

    Args:
        indexers: returns those of the present deployments.
        stop: set to end it, after the step that is under way.
        pause_seconds: after every one of them has read the newest block.
        on_error: called with each error.
    """
    while not stop.is_set():
        is_done = True
        try:
            for indexer in indexers():
                is_done &= _step(indexer, on_error)
                if stop.is_set():
                    return
        except CmflError as error:
            on_error(error)
        if is_done:
            stop.wait(pause_seconds)


def _step(indexer: Indexer, on_error: Callable[[CmflError], None]) -> bool:
    """Take one step; say whether the next one can wait for the pause."""
    try:
        result = indexer.step()
    except CmflError as error:
        on_error(error)
        return True
    return result.is_done and not result.rewound


class IndexUpdater:
    """A thread that writes the index of all deployments that a service reads.

    The service itself only reads the index: the thread has its own connections, and may as well be
    another process (`cmfl index build --follow`). A step that is killed writes nothing.
    """

    def __init__(self, where: Path | str, histories: HistoryService) -> None:
        """Prepare to keep an index; nothing is opened yet.

        Args:
            where: an SQLite file, or the URL of a PostgreSQL database that may be written.
            histories: of the deployments that the service reads.
        """
        self._where = where
        self._histories = histories
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="index-keeper", daemon=True)
        self._indexers: dict[tuple[bytes, str], Indexer] = {}
        self._last_message: str | None = None

    def start(self) -> None:
        """Begin, in a thread."""
        self._thread.start()

    def close(self) -> None:
        """End after the step that is under way."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                database = Database(self._where, read_only=False)
                earlier = make_schema(database)
            except CmflError as error:
                self._log_error(error)
                self._stop.wait(RETRY_SECONDS)
                continue
            if earlier is not None:
                _log.info("the index had schema %s: built anew as %s", earlier, SCHEMA_NUMBER)
            try:
                self._follow(database)
            finally:
                database.close()

    def _follow(self, database: Database) -> None:
        """Follow the chain until the service ends, or the file is another one."""
        self._indexers.clear()
        opened, is_lost = self._identify(), threading.Event()

        def indexers() -> list[Indexer]:
            if self._stop.is_set() or self._identify() != opened:
                is_lost.set()
                return []
            return self._of_all(database)

        follow(indexers, is_lost, pause_seconds=PAUSE_SECONDS, on_error=self._log_error)

    def _of_all(self, database: Database) -> list[Indexer]:
        """Return the indexers of all deployments that are served now."""
        now = self._histories.now()
        served, _ = now.deployments()
        earlier, self._indexers = self._indexers, {}
        for deployment in served:
            name = now.chain.genesis_hash, deployment.ledger.address
            indexer = earlier.get(name)
            if indexer is None or indexer.ledger is not deployment.ledger:
                indexer = Indexer(database, deployment.ledger, now.blobs)
            self._indexers[name] = indexer
        return list(self._indexers.values())

    def _log_error(self, error: CmflError) -> None:
        """Log an error, but not the same one again and again."""
        message = str(error)
        if message != self._last_message:
            self._last_message = message
            _log.warning("the index does not follow: %s", message)

    def _identify(self) -> tuple[int, int] | None:
        return None if isinstance(self._where, str) else file_identity(self._where)
