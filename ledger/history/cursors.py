"""Opaque cursors: the start of the next page, bound to its query.

A cursor is base64url of version, position and a checksum over both and the query's scope. The
checksum is no secret: it detects a cursor that was cut, altered or used for another query by
accident. A forged cursor reaches nothing: the query checks its own bounds again.
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
    """A cursor that does not belong to its query."""


def encode_cursor(position: int, scope: str) -> str:
    """Return a cursor as text for a URL; the position is below 2³²."""
    head = _HEAD.pack(VERSION, position)
    return base64.urlsafe_b64encode(head + _checksum(head, scope)).rstrip(b"=").decode()


def decode_cursor(cursor: str, scope: str, last: int, first: int = 0) -> int:
    """Return the position behind a cursor.

    Args:
        cursor: untrusted text.
        scope: the query without cursor and limit.
        last: the greatest position.
        first: the least position.

    Raises:
        CursorError: it is cut, altered, of another query, or out of range.
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
