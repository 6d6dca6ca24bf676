"""Documents that were missing when their round was indexed, looked for again."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, select

from ledger.history.documents import read_documents
from ledger.index.errors import damage_translated
from ledger.index.reading import events_of, registry_of
from ledger.index.rows import RoundRows, standing_of
from ledger.index.tables import WAITING
from ledger.index.writing import Writer

if TYPE_CHECKING:
    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.index.database import Database
    from ledger.protocol.ledger_state import Deployment
    from ledger.storage.blobs import BlobReader

RETRIED = 64
"""Rounds that are looked at at once."""

_NEXT = (
    select(WAITING.c.round, WAITING.c.record, WAITING.c.incidents)
    .where(WAITING.c.deployment == bindparam("of"), WAITING.c.round > bindparam("after"))
    .order_by(WAITING.c.round)
    .limit(RETRIED)
)


class MissingDocuments:
    """Goes round and round through the rounds of a deployment whose documents are missing."""

    def __init__(self, database: Database, fixed: Deployment, blobs: BlobReader) -> None:
        self._database = database
        self._fixed = fixed
        self._blobs = blobs
        self._after = 0

    def retry(self, deployment: int) -> int:
        """Look at the next few; return how many have come.

        Args:
            deployment: the row of it.

        Raises:
            IndexStoreError: the index cannot be written.
        """
        with self._database.transaction() as connection, damage_translated():
            waiting = connection.execute(_NEXT, {"of": deployment, "after": self._after})
            rows = waiting.all()
            if not rows:
                self._after = 0
                return 0
            self._after = rows[-1].round
            registry, found = registry_of(connection, deployment), RoundRows()
            for row in rows:
                events = events_of(connection, deployment, row.round)
                documents = read_documents(self._blobs, events.line(self._fixed, registry))
                if standing_of(documents, is_decided=True) != (row.record, row.incidents):
                    time_of = partial(_known, events.ended_time or 0)
                    found.add(self._fixed, registry, events, self._blobs, time_of)
            Writer(connection, deployment).put_again(found)
            return len(found.rounds)


def _known(time: int, _recorded: RecordedEvent) -> int:
    """Return a time that needs no block to be read."""
    return time
