"""Canonical msgpack: maps with sorted text keys, no extension types, one encoding per value.

A decoder re-encodes what it read and compares, so that a document has one digest. Size, nesting and
the number of maps and lists are bounded before anything walks over the data: refusals must
depend neither on Python's recursion limit nor on the depth of the caller's stack.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, cast

import msgpack

from ledger.protocol.errors import EncodingError

T = TypeVar("T")

MAX_DOCUMENT_BYTES = 1_000_000
"""A run of 12,288 clients takes 400 kB."""

MAX_CONTAINERS = 65_536
"""Maps and lists of a document, and entries of each: a million of them, of a byte each, would be
160 MB in memory and 2 s of work."""

MAX_NESTING = 16
"""Maps and lists inside one another; a round's record has six."""

_PLAIN = frozenset({bool, int, float, str, bytes, type(None)})


def encode(value: object) -> bytes:
    """Return the canonical msgpack of plain data: the only bytes that `decode` accepts for it."""
    return cast("bytes", msgpack.packb(_sorted(value, MAX_NESTING), use_bin_type=True))


def decode(
    data: bytes,
    limit: int = MAX_DOCUMENT_BYTES,
    *,
    containers: int = MAX_CONTAINERS,
    longest: int = MAX_CONTAINERS,
) -> dict[str, Any]:
    """Return the map behind canonical bytes.

    Args:
        data: the document's bytes.
        limit: largest size that is decoded.
        containers: maps and lists that it may have, itself one of them.
        longest: entries that each of them may have.
    """
    if len(data) > limit:
        raise EncodingError(f"a document of {len(data)} bytes is over the bound of {limit}")
    counted = _counting(containers)
    try:
        value = msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            list_hook=counted,
            object_hook=counted,
            ext_hook=_refuse_extension,
            max_array_len=longest,
            max_map_len=longest,
        )
        same = isinstance(value, dict) and encode(value) == data
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        reason = f"{type(error).__name__} {error}"
        raise EncodingError(f"not a canonical msgpack document: {reason:.200}") from error
    if not same:
        raise EncodingError("not a canonical msgpack map")
    return cast("dict[str, Any]", value)


def _counting(most: int) -> Callable[[T], T]:
    """Return what is called with each map and list as it is read."""
    left = most

    def count(container: T) -> T:
        nonlocal left
        left -= 1
        if left < 0:
            raise ValueError(f"more than {most} maps and lists")
        return container

    return count


def _refuse_extension(code: int, _: bytes) -> NoReturn:
    """Refuse an extension type; raises TypeError."""
    raise TypeError(f"extension {code} is not plain data")


def _sorted(value: object, depth: int) -> object:
    """Return the value with its maps sorted."""
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
