"""The places of a digest in a deployment: round, client and kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.history.digests import DigestKind, Occurrence
from ledger.history.pages import decode_cursor, encode_cursor
from ledger.protocol.encoding import to_hex
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from ledger.history.history import FoldedHistory
    from ledger.history.responses.digests import DigestPage, DigestPlace

LAST_POSITION = 2**32 - 1

BLOB_KINDS = frozenset(
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
"""Kinds that are the sha256 of a file, as `sha256sum` prints it."""


def digest_page(
    history: FoldedHistory, digest: Digest, limit: int, cursor: str | None
) -> DigestPage:
    """Return a page of the places of a digest, the deployment's first, then by round."""
    scope = repr(("digests", str(history.path), digest.hex()))
    start = 0 if cursor is None else decode_cursor(cursor, scope, LAST_POSITION)
    occurrences = history.occurrences(digest, start, limit + 1)
    has_more = len(occurrences) > limit
    return {
        "digest": to_hex(digest),
        "items": [_item(history, digest, occurrence) for occurrence in occurrences[:limit]],
        "next_cursor": encode_cursor(start + limit, scope) if has_more else None,
    }


def _item(history: FoldedHistory, digest: Digest, occurrence: Occurrence) -> DigestPlace:
    path = history.path
    links = {"deployment": str(path)}
    if occurrence.round is not None:
        links["round"] = path.round_links(occurrence.round)["self"]
    if occurrence.client is not None:
        links["client"] = path.client_links(occurrence.client)["self"]
    if occurrence.kind in BLOB_KINDS:
        links["blob"] = f"/v1/blobs/{digest.hex()}"
    return {
        "kind": occurrence.kind.name.lower(),
        "round": occurrence.round,
        "client": occurrence.client,
        "links": links,
    }
