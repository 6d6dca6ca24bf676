"""Where a digest stands in a deployment: which round, whose, and as what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.history.cursors import decode_cursor, encode_cursor
from ledger.history.digests import DigestKind
from ledger.history.facts.words import hexed

if TYPE_CHECKING:
    from ledger.history.digests import Occurrence
    from ledger.history.facts.words import Facts
    from ledger.history.source import HistorySource
    from ledger.protocol.types import Digest

LAST_PLACE = 2**32 - 1

BLOBS = frozenset(
    {
        DigestKind.CONFIGURATION,
        DigestKind.INITIAL_MODEL,
        DigestKind.PAYLOAD,
        DigestKind.SCORE_VECTOR,
        DigestKind.MODEL,
        DigestKind.RECORD,
        DigestKind.INCIDENTS,
    }
)
"""What is the sha256 of a file, as `sha256sum` prints it."""


def digest_facts(history: HistorySource, digest: Digest, limit: int, cursor: str | None) -> Facts:
    """Return a page of the places where a digest stands, the deployment's first, then by round.

    Args:
        history: of the deployment.
        digest: any 32 bytes; one that stands nowhere has no places.
        limit: how many places at most.
        cursor: where the page begins; None for the beginning.

    Raises:
        CursorError: the cursor is not one of this digest's.
        TooLongError: the history is too long to be looked through without an index.
    """
    scope = repr(("digests", str(history.path), digest.hex()))
    start = 0 if cursor is None else decode_cursor(cursor, scope, LAST_PLACE)
    found = history.occurrences(digest, start, limit + 1)
    onward = encode_cursor(start + limit, scope) if len(found) > limit else None
    return {
        "digest": hexed(digest),
        "items": [_item(history, digest, one) for one in found[:limit]],
        "next_cursor": onward,
    }


def _item(history: HistorySource, digest: Digest, one: Occurrence) -> Facts:
    path = history.path
    links = {"deployment": str(path)}
    if one.round is not None:
        links["round"] = path.round_links(one.round)["self"]
    if one.client is not None:
        links["client"] = path.client_links(one.client)["self"]
    if one.kind in BLOBS:
        links["blob"] = f"/v1/blobs/{digest.hex()}"
    return {
        "kind": one.kind.name.lower(),
        "round": one.round,
        "client": one.client,
        "links": links,
    }
