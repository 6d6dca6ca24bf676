"""Canonical msgpack: maps with sorted text keys, no extension types, one encoding per value.

A decoder re-encodes what it read and compares, so that a document has one digest. Size, nesting and
the number of maps and lists are bounded before anything walks over the data: refusals must
depend neither on Python's recursion limit nor on the depth of the caller's stack.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, NoReturn, TypeVar, cast

import msgpack

from ledger.protocol.errors import EncodingError
from ledger.protocol.types import PROTOCOL_VERSION, ClientId, Digest

T = TypeVar("T")
Code = TypeVar("Code", bound=IntEnum)
MAX_DOCUMENT_BYTES = 1_000_000  # a run of 12,288 clients takes 400 kB
# Maps and lists of a document, and entries of each: a million would take 160 MB and 2 s of work.
MAX_CONTAINERS = 65_536
MAX_NESTING = 16  # maps and lists inside one another; a round's record has six
_PLAIN = frozenset({bool, int, float, str, bytes, type(None)})


def encode(value: object) -> bytes:
    """Return the canonical msgpack of plain data: the only bytes that `decode` accepts for it."""
    return cast("bytes", msgpack.packb(_sorted(value, MAX_NESTING), use_bin_type=True))


def document(**fields: object) -> bytes:
    """Return the bytes of a document of this protocol version."""
    return encode({"version": PROTOCOL_VERSION, **fields})


def decode(
    data: bytes,
    limit: int = MAX_DOCUMENT_BYTES,
    *,
    containers: int = MAX_CONTAINERS,
    longest: int = MAX_CONTAINERS,
) -> dict[str, Any]:
    """Return the map behind canonical bytes of at most `limit`.

    `containers` bounds its maps and lists, itself one of them, and `longest` the entries of each.
    """
    if len(data) > limit:
        raise EncodingError(f"a document of {len(data)} bytes is over the bound of {limit}")
    left = containers

    def counted(container: T) -> T:
        nonlocal left
        left -= 1
        if left < 0:
            raise ValueError(f"more than {containers} maps and lists")
        return container

    def refuse_extension(code: int, _: bytes) -> NoReturn:
        raise TypeError(f"extension {code} is not plain data")

    try:
        value = msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            list_hook=counted,
            object_hook=counted,
            ext_hook=refuse_extension,
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


def _sorted(value: object, depth: int) -> object:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if depth == 0:
        raise ValueError(f"maps and lists are nested deeper than {MAX_NESTING}")
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {
            key: item if type(item := value[key]) in _PLAIN else _sorted(item, depth - 1)
            for key in sorted(value)
        }
    if isinstance(value, (list, tuple)) and kind in {list, tuple}:
        if _PLAIN.issuperset(map(type, value)):
            return value
        return [_sorted(item, depth - 1) for item in value]
    raise TypeError(f"{kind.__name__} is not plain data, or a key is not text")


def exact_fields(value: Mapping[str, Any], types: Mapping[str, type]) -> dict[str, Any]:
    """Return a map that has exactly these keys, with values of exactly these types."""
    if set(value) != set(types):
        odd = sorted(set(value) ^ set(types))
        raise EncodingError(f"fields {odd!s:.200} are missing or not known")
    for name, kind in types.items():
        if type(value[name]) is not kind:
            raise EncodingError(f"{name} is not of type {kind.__name__}")
    return dict(value)


def other_version(name: str, version: object) -> str:
    """Return the sentence that refuses a document of another protocol version."""
    return (
        f"{name} has protocol version {version!s:.20}; this program needs version "
        f"{PROTOCOL_VERSION}"
    )


def require_version(name: str, value: object) -> None:
    """Reject a document of another protocol version; `exact_fields` rejects one without."""
    version = value.get("version") if isinstance(value, Mapping) else None
    if type(version) is int and version != PROTOCOL_VERSION:
        raise EncodingError(other_version(name, version))


def versioned_fields(
    name: str, value: Mapping[str, Any], types: Mapping[str, type]
) -> dict[str, Any]:
    """Return the fields of a document of this protocol version."""
    require_version(name, value)
    return exact_fields(value, {"version": int, **types})


def row(value: object, length: int) -> list[Any]:
    """Return a list of this length; like all readers below, it raises EncodingError."""
    if type(value) is not list or len(value) != length:
        raise EncodingError(f"{value!r:.80} is not a list of {length}")
    return value


def unsigned(name: str, value: object, bits: int) -> int:
    """Return an integer of at most `bits` bits."""
    if type(value) is not int or not 0 <= value < 1 << bits:
        raise EncodingError(f"{name} {value!r:.80} is not a whole number of {bits} bits")
    return value


def code(kind: type[Code], name: str, value: object) -> Code:
    """Return the member of an enumeration with this number of 8 bits."""
    try:
        return kind(unsigned(name, value, 8))
    except ValueError as error:
        raise EncodingError(f"there is no {name} {value}") from error


def client_id(value: object) -> ClientId:
    """Return a client's index of 32 bits."""
    return ClientId(unsigned("client", value, 32))


def fixed_bytes(name: str, value: object, length: int) -> bytes:
    """Return bytes of this length."""
    if type(value) is not bytes or len(value) != length:
        raise EncodingError(f"{name} {value!r:.80} is not {length} bytes")
    return value


def digest(value: object) -> Digest:
    """Return a digest of 32 bytes."""
    return Digest(fixed_bytes("digest", value, 32))


def signature(value: object) -> bytes:
    """Return a signature of 65 bytes."""
    return fixed_bytes("signature", value, 65)


def require_ascending(name: str, values: Iterable[Any]) -> None:
    """Refuse keys that do not ascend strictly."""
    keys = list(values)
    if any(map(operator.ge, keys, keys[1:])):
        raise EncodingError(f"{name} are not strictly ascending")


def packed_clients(data: bytes) -> tuple[ClientId, ...]:
    """Return the clients of a join of big-endian u32, strictly ascending."""
    if len(data) % 4:
        raise EncodingError(f"{len(data)} bytes are not a list of clients")
    clients: tuple[ClientId, ...] = struct.unpack(f">{len(data) // 4}I", data)
    require_ascending("clients", clients)
    return clients
