"""Fields of a JSON document that anybody may have written: each is what it must be, or refused.

Bytes are 0x and hex digits in lower case, numbers that may be beyond 2^53 decimal strings; there is
one way of writing each value.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

from ledger.protocol.documents.fields import client_id, exact_fields, unsigned
from ledger.protocol.errors import EncodingError
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from collections.abc import Callable
    from enum import Enum

    from ledger.protocol.types import ClientId

T = TypeVar("T")
E = TypeVar("E", bound="Enum")

_HEX = re.compile(r"0x(?:[0-9a-f]{2})*")
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,77}")


def hexed(data: bytes) -> str:
    """Return bytes as a document has them."""
    return f"0x{data.hex()}"


def fields_of(name: str, value: object, types: dict[str, type]) -> dict[str, Any]:
    """Return a map that has exactly these keys; `object` stands for a value of any type.

    Raises:
        EncodingError: it is no map, or a key is missing or unknown, or a value of another type.
    """
    if type(value) is not dict:
        raise EncodingError(f"{name} {value!r:.80} is not a map")
    exact = {
        key: kind if kind is not object else type(value.get(key)) for key, kind in types.items()
    }
    try:
        return exact_fields(value, exact)
    except EncodingError as error:
        raise EncodingError(f"{name}: {error}") from error


def octets(name: str, value: object, most: int) -> bytes:
    """Return bytes of at most this length.

    Raises:
        EncodingError: they are no 0x-hex in lower case, or more.
    """
    if type(value) is not str or len(value) > 2 + 2 * most or not _HEX.fullmatch(value):
        raise EncodingError(f"{name} {value!r:.80} is not 0x and hex digits of {most} bytes")
    return bytes.fromhex(value[2:])


def exactly(name: str, value: object, length: int) -> bytes:
    """Return bytes of exactly this length.

    Raises:
        EncodingError: they are no 0x-hex in lower case, or fewer or more.
    """
    found = octets(name, value, length)
    if len(found) != length:
        raise EncodingError(f"{name} {value!r:.80} is not {length} bytes")
    return found


def digest(name: str, value: object) -> Digest:
    """Return a digest.

    Raises:
        EncodingError: it is not 32 bytes of 0x-hex.
    """
    return Digest(exactly(name, value, 32))


def decimal(name: str, value: object, bits: int) -> int:
    """Return a number that is written as a decimal string.

    Raises:
        EncodingError: it is none, or has more bits.
    """
    if type(value) is not str or not _DECIMAL.fullmatch(value):
        raise EncodingError(f"{name} {value!r:.80} is not a decimal string")
    return unsigned(name, int(value), bits)


def listed(name: str, value: object, item: Callable[[str, object], T], most: int) -> tuple[T, ...]:
    """Return a list of at most so many items.

    Raises:
        EncodingError: it is no list, or longer, or an item is none.
    """
    if type(value) is not list or len(value) > most:
        raise EncodingError(f"{name} {value!r:.80} is not a list of at most {most}")
    return tuple(item(name, one) for one in value)


def maybe(name: str, value: object, item: Callable[[str, object], T]) -> T | None:
    """Return an item, or None where the document has null.

    Raises:
        EncodingError: it is neither.
    """
    return None if value is None else item(name, value)


def client(name: str, value: object) -> ClientId:
    """Return a client's index.

    Raises:
        EncodingError: it is no number of 32 bits.
    """
    try:
        return client_id(value)
    except EncodingError as error:
        raise EncodingError(f"{name}: {error}") from error


def named(name: str, value: object, kind: type[E]) -> E:
    """Return the member of an enumeration that a value stands for.

    Raises:
        EncodingError: it stands for none.
    """
    known = {member.value: member for member in kind}
    if type(value) not in {str, int} or value not in known:
        raise EncodingError(f"{name} {value!r:.80} is none of {', '.join(map(str, known))}")
    return known[value]


def pair(name: str, value: object, bits: int) -> tuple[int, int]:
    """Return two numbers, written as decimal strings.

    Raises:
        EncodingError: there are not two, or they are none.
    """
    found = listed(name, value, lambda at, one: decimal(at, one, bits), 2)
    if len(found) != 2:
        raise EncodingError(f"{name} {value!r:.80} is not a list of 2")
    return found[0], found[1]
