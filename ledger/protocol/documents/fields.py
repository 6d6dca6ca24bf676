"""Checked fields of a decoded document: each function returns the value or raises EncodingError."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from ledger.protocol.errors import EncodingError
from ledger.protocol.types import PROTOCOL_VERSION, ClientId, Digest


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
    """Reject a document of another protocol version.

    Args:
        value: the document; one without a version is rejected later, for its fields.
    """
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
    """Return a list of this length; raises EncodingError."""
    if type(value) is not list or len(value) != length:
        raise EncodingError(f"{value!r:.80} is not a list of {length}")
    return value


def unsigned(name: str, value: object, bits: int) -> int:
    """Return an integer of at most `bits` bits; raises EncodingError."""
    if type(value) is not int or not 0 <= value < 1 << bits:
        raise EncodingError(f"{name} {value!r:.80} is not a whole number of {bits} bits")
    return value


def client_id(value: object) -> ClientId:
    """Return a client's index of 32 bits; raises EncodingError."""
    return ClientId(unsigned("client", value, 32))


def fixed_bytes(name: str, value: object, length: int) -> bytes:
    """Return bytes of this length; raises EncodingError."""
    if type(value) is not bytes or len(value) != length:
        raise EncodingError(f"{name} {value!r:.80} is not {length} bytes")
    return value


def digest(value: object) -> Digest:
    """Return a digest of 32 bytes; raises EncodingError."""
    return Digest(fixed_bytes("digest", value, 32))


def signature(value: object) -> bytes:
    """Return a signature of 65 bytes; raises EncodingError."""
    return fixed_bytes("signature", value, 65)


def require_ascending(name: str, values: Iterable[Any]) -> None:
    """Refuse keys that do not ascend strictly; raises EncodingError."""
    if any(first >= second for first, second in pairwise(values)):
        raise EncodingError(f"{name} are not strictly ascending")


def packed_clients(data: bytes) -> tuple[ClientId, ...]:
    """Return the clients of a join of big-endian u32, strictly ascending."""
    if len(data) % 4:
        raise EncodingError(f"{len(data)} bytes are no list of clients")
    starts = range(0, len(data), 4)
    clients = tuple(ClientId(int.from_bytes(data[start : start + 4])) for start in starts)
    require_ascending("clients", clients)
    return clients
