"""One thread beside a service that keeps its index at the head of the chain."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from ledger.index.catching_up import follow
from ledger.index.database import Database
from ledger.index.indexer import Indexer
from ledger.index.schema import make_schema
from ledger.protocol.errors import CmflError

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.history.pinned_chain import HistoryService

PAUSE_SECONDS = 0.25
"""Between two looks at the head; until then lists come from the chain."""

RETRIED_AFTER_SECONDS = 5.0
"""When the database cannot be opened."""

STOPPED_WITHIN_SECONDS = 10.0

_log = logging.getLogger(__name__)


class IndexUpdater:
    """Writes the index of all deployments that a service reads.

    The service itself only reads the index: this thread has connections of its own, and may as well
    be another process (`cmfl index build --follow`). What it is killed in the middle of is not
    written.
    """

    def __init__(self, where: Path | str, histories: HistoryService) -> None:
        """Prepare to keep an index; nothing is opened yet.

        Args:
            where: an SQLite file, or the URL of a PostgreSQL database that may be written.
            histories: what the service reads.
        """
        self._where = where
        self._histories = histories
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="index-keeper", daemon=True)
        self._indexers: dict[tuple[bytes, str], Indexer] = {}
        self._last_told: str | None = None

    def start(self) -> None:
        """Begin, in a thread."""
        self._thread.start()

    def close(self) -> None:
        """End after the step that is under way."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(STOPPED_WITHIN_SECONDS)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                database = Database(self._where, read_only=False)
                make_schema(database)
            except CmflError as error:
                self._tell(error)
                self._stop.wait(RETRIED_AFTER_SECONDS)
                continue
            try:
                self._follow(database)
            finally:
                database.close()

    def _follow(self, database: Database) -> None:
        """Follow the chain until told to stop, or the file is another one."""
        self._indexers.clear()
        opened, is_lost = _identity(self._where), threading.Event()

        def indexers() -> list[Indexer]:
            if self._stop.is_set() or _identity(self._where) != opened:
                is_lost.set()
                return []
            return self._of_all(database)

        follow(indexers, is_lost, pause_seconds=PAUSE_SECONDS, told=self._tell)

    def _of_all(self, database: Database) -> list[Indexer]:
        """Return the indexers of all deployments that are served now."""
        now = self._histories.now()
        served, _ = now.deployments()
        known, self._indexers = self._indexers, {}
        for one in served:
            name = now.chain.genesis_hash, one.ledger.address
            indexer = known.get(name)
            if indexer is None or indexer.ledger is not one.ledger:
                indexer = Indexer(database, one.ledger, now.blobs)
            self._indexers[name] = indexer
        return list(self._indexers.values())

    def _tell(self, error: CmflError) -> None:
        """Log an error, but not the same one again and again."""
        said = str(error)
        if said != self._last_told:
            self._last_told = said
            _log.warning("the index does not follow: %s", said)


def _identity(where: Path | str) -> tuple[int, int] | None:
    """Return what tells one file from another under its name."""
    if isinstance(where, str):
        return None
    try:
        status = where.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
