"""A fast decoder for ABI data in the layout that every compiler produces.

It takes a tenth of the time of a general decoder, which matters when a long history is read. Data
in any other layout are left to the general decoder, so the same data are accepted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

_WORD = 32
_ANY = 2**256
_LEAF = re.compile(r"uint([0-9]+)|bytes32")
_FIXED = re.compile(r"(.*)\[([0-9]+)\]")


@dataclass(frozen=True, slots=True)
class _Row:
    """Consecutive words: a tuple, an array of fixed length, or one value.

    Attributes:
        bounds: exclusive upper bound of each word's unsigned integer; None for 32 bytes.
        is_leaf: whether it is a single value, and not a tuple of one.
    """

    bounds: tuple[int | None, ...]
    is_leaf: bool = False
    split: Struct = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "split", _words(len(self.bounds)))


@dataclass(frozen=True, slots=True)
class _List:
    """A list of any length; its head is one word, the offset of its body."""

    part: _Row
    bounds: tuple[int | None, ...] = (_ANY,)

    def read(self, data: bytes, at: int) -> tuple[Any, ...]:
        """Return the values of the list from an offset to the end of the data.

        Raises:
            ValueError: the list has another length.
        """
        split, first = self.part.split, at + _WORD
        length = int.from_bytes(data[at:first])
        if len(data) < first or len(data) != first + split.size * length:
            raise ValueError("another layout")
        rows = split.iter_unpack(memoryview(data)[first:])
        values = iter(_values([word for row in rows for word in row], self.part.bounds * length))
        if self.part.is_leaf:
            return tuple(values)
        return tuple(zip(*[values] * len(self.part.bounds), strict=True))


def _values(words: Iterable[bytes], bounds: tuple[int | None, ...]) -> list[Any]:
    """Return the values of words.

    Raises:
        ValueError: one is out of range.
    """
    values: list[Any] = []
    for word, bound in zip(words, bounds, strict=True):
        if bound is None:
            values.append(word)
            continue
        value = int.from_bytes(word)
        if value >= bound:
            raise ValueError("out of range")
        values.append(value)
    return values


@lru_cache(maxsize=64)
def _words(count: int) -> Struct:
    """Return the struct that splits data into words."""
    return Struct(f"{_WORD}s" * count)


_Part = _Row | _List


@dataclass(frozen=True, slots=True)
class _Plan:
    """A decoding plan: the parts, each with its first word and its end."""

    parts: tuple[tuple[int, int, _Part], ...]
    bounds: tuple[int | None, ...]

    @staticmethod
    def of(parts: list[_Part]) -> _Plan:
        """Return the plan of consecutive parts."""
        ends = [sum(len(part.bounds) for part in parts[: i + 1]) for i in range(len(parts))]
        spans = zip([0, *ends], ends, parts, strict=False)
        return _Plan(tuple(spans), tuple(bound for part in parts for bound in part.bounds))

    def read(self, data: bytes) -> tuple[Any, ...]:
        """Return the decoded values.

        Raises:
            ValueError: the data have another layout, or a value is out of range.
        """
        head = _words(len(self.bounds))
        if len(data) < head.size:
            raise ValueError("cut off")
        values = _values(head.unpack_from(data), self.bounds)
        decoded: list[Any] = []
        for first, end, part in self.parts:
            if isinstance(part, _List):
                if values[first] != head.size:
                    raise ValueError("another layout")
                decoded.append(part.read(data, head.size))
            else:
                decoded.append(values[first] if part.is_leaf else tuple(values[first:end]))
        return tuple(decoded)


def decode_words(types: tuple[str, ...], data: bytes) -> tuple[Any, ...] | None:
    """Return the values in ABI data, lists as tuples; None if the general decoder is needed.

    None is also the answer to malformed data.
    """
    plan = _plan(types)
    if plan is None:
        return None
    try:
        return plan.read(data)
    except ValueError:
        return None


@lru_cache(maxsize=32)
def _plan(types: tuple[str, ...]) -> _Plan | None:
    """Return the decoding plan of some types; None if they need the general decoder."""
    parts = [part for part in map(_part, types) if part is not None]
    if len(parts) < len(types) or sum(isinstance(part, _List) for part in parts) > 1:
        return None
    return _Plan.of(parts)


def _part(abi_type: str) -> _Part | None:
    if abi_type.endswith("[]"):
        inner = _part(abi_type[:-2])
        return _List(inner) if isinstance(inner, _Row) else None
    if abi_type.startswith("(") and abi_type.endswith(")"):
        return _row([_part(inner) for inner in abi_type[1:-1].split(",")])
    fixed = _FIXED.fullmatch(abi_type)
    if fixed is not None:
        return _row([_part(fixed[1])] * int(fixed[2]))
    leaf = _LEAF.fullmatch(abi_type)
    if leaf is None:
        return None
    return _Row((None if leaf[1] is None else 2 ** int(leaf[1]),), is_leaf=True)


def _row(parts: list[_Part | None]) -> _Row | None:
    leaves = tuple(part for part in parts if isinstance(part, _Row) and part.is_leaf)
    if not leaves or len(leaves) < len(parts):
        return None
    return _Row(tuple(bound for leaf in leaves for bound in leaf.bounds))
