"""Canonical msgpack: maps with sorted text keys, no extension types, one encoding per value.

A decoder re-encodes what it read and compares, so that a document has one digest. Size and
nesting are bounded before anything walks over the data: what is refused must depend neither on
Python's recursion limit nor on how deep the caller stands in its own stack.
"""

from __future__ import annotations

from typing import Any, cast

import msgpack

from ledger.protocol.errors import EncodingError

MAX_DOCUMENT_BYTES = 1_000_000
"""A run of 12,288 clients takes 400 kB; a map of a million empty lists takes 160 MB in memory."""

MAX_NESTING = 16
"""Maps and lists inside one another; a round's record has six."""

_PLAIN = frozenset({bool, int, float, str, bytes, type(None)})


def encode(value: object) -> bytes:
    """Return the canonical msgpack of plain data.

    Args:
        value: maps with text keys, lists, text, bytes, numbers, booleans and None.

    Returns:
        The only bytes that `decode` takes for it.

    Raises:
        TypeError: something is not plain data, or a key is not text.
        ValueError: nested deeper than `MAX_NESTING`, or text that is not Unicode.
        OverflowError: an integer does not fit 64 bits.
    """
    return cast("bytes", msgpack.packb(_sorted(value, MAX_NESTING), use_bin_type=True))


def decode(data: bytes, limit: int = MAX_DOCUMENT_BYTES) -> dict[str, Any]:
    """Return the map behind canonical bytes.

    Args:
        data: the document's bytes.
        limit: largest size that is decoded.

    Returns:
        The map, with text keys.

    Raises:
        EncodingError: too long, nested too deeply, not msgpack, not a map, or not canonical.
    """
    if len(data) > limit:
        raise EncodingError(f"a document of {len(data)} bytes is over the bound of {limit}")
    try:
        value = msgpack.unpackb(data, raw=False, strict_map_key=True)
        same = isinstance(value, dict) and encode(value) == data
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        reason = f"{type(error).__name__} {error}"
        raise EncodingError(f"not a canonical msgpack document: {reason:.200}") from error
    if not same:
        raise EncodingError("not a canonical msgpack map")
    return cast("dict[str, Any]", value)


def _sorted(value: object, depth: int) -> object:
    """Return the value with its maps sorted.

    Raises:
        TypeError: something is not plain data; msgpack's extensions and time stamps are not.
        ValueError: maps and lists are nested deeper than the depth.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if depth == 0:
        raise ValueError(f"maps and lists are nested deeper than {MAX_NESTING}")
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _sorted(value[key], depth - 1) for key in sorted(value)}
    if isinstance(value, (list, tuple)) and kind in {list, tuple}:
        if _PLAIN.issuperset(map(type, value)):
            return value
        return [_sorted(item, depth - 1) for item in value]
    raise TypeError(f"{kind.__name__} is not plain data, or a key is not text")
