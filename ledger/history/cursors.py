"""Opaque cursors: where the next page begins, bound to the query that they came from.

A cursor is base64url of version, position and a checksum over both and the query's scope. The
checksum is no secret: it keeps a cursor from being cut, altered or carried to another query by
accident. What a forger could reach, the query's own bounds check again.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct

from ledger.protocol.errors import CmflError

VERSION = 1
MAX_CURSOR = 64
_CHECKSUM_BYTES = 12
_HEAD = struct.Struct(">BI")


class CursorError(CmflError):
    """A cursor that is not one of the query's."""


def encode_cursor(position: int, scope: str) -> str:
    """Return a cursor.

    Args:
        position: round or client with which the next page begins, below 2³².
        scope: the query without cursor and limit.

    Returns:
        Text for a URL.
    """
    head = _HEAD.pack(VERSION, position)
    return base64.urlsafe_b64encode(head + _checksum(head, scope)).rstrip(b"=").decode()


def decode_cursor(cursor: str, scope: str, last: int, first: int = 0) -> int:
    """Return the position behind a cursor.

    Args:
        cursor: as the client gave it.
        scope: the query without cursor and limit.
        last: the last position there is.
        first: the first.

    Returns:
        The position, in [first, last].

    Raises:
        CursorError: it is no cursor of this query.
    """
    try:
        data = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        version, position = _HEAD.unpack_from(data)
    except (ValueError, binascii.Error, struct.error) as error:
        raise CursorError("it is cut or altered") from error
    if version != VERSION or encode_cursor(position, scope) != cursor:
        raise CursorError("it is altered, or of another query or version")
    if not first <= position <= last:
        raise CursorError("it points to nothing that is there")
    return int(position)


def _checksum(head: bytes, scope: str) -> bytes:
    return hashlib.sha256(head + scope.encode()).digest()[:_CHECKSUM_BYTES]
