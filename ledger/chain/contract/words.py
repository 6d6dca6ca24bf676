"""ABI data in the layout that every compiler makes, decoded word by word.

That takes a tenth of what a general decoder takes, and whoever reads a long history decodes little
else. Data in another layout is left to the general decoder, so that the same data are accepted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_WORD = 32
_LEAF = re.compile(r"uint([0-9]+)|bytes32")
_FIXED = re.compile(r"(.*)\[([0-9]+)\]")


@dataclass(frozen=True, slots=True)
class _Leaf:
    """One word: an unsigned integer below `bound`, or 32 bytes where there is no bound."""

    bound: int | None
    words = 1

    def read(self, data: bytes, at: int) -> Any:
        """Return the value of the word at a place.

        Raises:
            ValueError: it is out of range.
        """
        word = data[at : at + _WORD]
        if self.bound is None:
            return word
        value = int.from_bytes(word)
        if value >= self.bound:
            raise ValueError("out of range")
        return value


@dataclass(frozen=True, slots=True)
class _Row:
    """Several words one after the other: a tuple, or an array of fixed length."""

    parts: tuple[_Leaf, ...]

    @property
    def words(self) -> int:
        """How many these are."""
        return len(self.parts)

    def read(self, data: bytes, at: int) -> Any:
        """Return the values that begin at a place."""
        return tuple(part.read(data, at + _WORD * i) for i, part in enumerate(self.parts))


@dataclass(frozen=True, slots=True)
class _List:
    """A list of any length, of which the head holds one word: where it begins."""

    part: _Leaf | _Row
    words = 1

    def read(self, data: bytes, at: int) -> Any:
        """Return the values of the list that begins at a place and ends with the data.

        Raises:
            ValueError: it is longer or shorter.
        """
        size = _WORD * self.part.words
        first = at + _WORD
        if len(data) < first or len(data) != first + size * int.from_bytes(data[at:first]):
            raise ValueError("another layout")
        if isinstance(self.part, _Leaf) and self.part.bound == 2**256:
            return tuple(int.from_bytes(data[i : i + _WORD]) for i in range(first, len(data), size))
        return tuple(self.part.read(data, i) for i in range(first, len(data), size))


_Part = _Leaf | _Row | _List


@dataclass(frozen=True, slots=True)
class _Plan:
    """How values are read: the parts, and where the list begins if there is one."""

    parts: tuple[tuple[int, _Part], ...]
    head: int

    @staticmethod
    def of(parts: list[_Part]) -> _Plan:
        """Return the plan of these parts, one after the other."""
        places = [_WORD * sum(part.words for part in parts[:i]) for i in range(len(parts) + 1)]
        return _Plan(tuple(zip(places, parts, strict=False)), places[-1])

    def read(self, data: bytes) -> tuple[Any, ...]:
        """Return the values.

        Raises:
            ValueError: the data are in another layout, or a value is out of range.
        """
        if len(data) < self.head:
            raise ValueError("cut off")
        found = []
        for at, part in self.parts:
            start = at
            if isinstance(part, _List):
                start = int.from_bytes(data[at : at + _WORD])
                if start != self.head:
                    raise ValueError("another layout")
            found.append(part.read(data, start))
        return tuple(found)


def decode_words(types: tuple[str, ...], data: bytes) -> tuple[Any, ...] | None:
    """Return the values in ABI data, None if a general decoder has to look at them.

    Args:
        types: of the values, as the ABI writes them.
        data: their encoding.

    Returns:
        The values, lists as tuples; None also where the data are no encoding of any.
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
    """Return how values of these types are read; None if that takes a general decoder."""
    parts = [part for part in map(_part, types) if part is not None]
    if len(parts) < len(types) or sum(isinstance(part, _List) for part in parts) > 1:
        return None
    return _Plan.of(parts)


def _part(one: str) -> _Part | None:
    if one.endswith("[]"):
        inner = _part(one[:-2])
        return None if inner is None or isinstance(inner, _List) else _List(inner)
    if one.startswith("(") and one.endswith(")"):
        return _row([_part(inner) for inner in one[1:-1].split(",")])
    fixed = _FIXED.fullmatch(one)
    if fixed is not None:
        return _row([_part(fixed[1])] * int(fixed[2]))
    leaf = _LEAF.fullmatch(one)
    if leaf is None:
        return None
    return _Leaf(None if leaf[1] is None else 2 ** int(leaf[1]))


def _row(parts: list[_Part | None]) -> _Row | None:
    leaves = tuple(part for part in parts if isinstance(part, _Leaf))
    return _Row(leaves) if leaves and len(leaves) == len(parts) else None
