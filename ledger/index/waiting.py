"""Rounds whose documents are missing: whether one has come that is not indexed yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam, select

from ledger.index.errors import IndexStaleError
from ledger.index.queries import Query
from ledger.index.rows import standing_of
from ledger.index.tables import WAITING

if TYPE_CHECKING:
    from ledger.index.history import IndexedHistory

MOST_LOOKED_FOR = 64
"""Rounds whose missing documents are looked for before counts are told; the newest of them."""

_NEWEST = Query(
    select(WAITING.c.round, WAITING.c.record, WAITING.c.incidents)
    .where(WAITING.c.deployment == bindparam("of"))
    .order_by(WAITING.c.round.desc())
    .limit(bindparam("most"))
)


def require_no_news(history: IndexedHistory) -> None:
    """Refuse counts and digests while a document is there that was missing before.

    Args:
        history: of the deployment.

    Raises:
        IndexStaleError: one has come, and is not indexed yet.
    """
    if not history.row["waiting"]:
        return
    asked = {"of": history.row["id"], "most": MOST_LOOKED_FOR}
    rows = _NEWEST.rows(history.connection, asked)
    known = {number: standing for number, *standing in rows}
    for one in history.some(known):
        if [*standing_of(history.documents(one), is_decided=True)] != known[one.round]:
            raise IndexStaleError(f"a document of round {one.round} has come meanwhile")
