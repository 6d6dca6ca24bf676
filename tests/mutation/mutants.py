"""A mutant: one small change of one source file, and what kind of change it is."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What is changed."""

    GUARD = "guard"
    """A refusal does not happen."""

    COMPARISON = "comparison"
    """A comparison says the opposite."""

    BOUNDARY = "boundary"
    """A comparison takes its bound in, or leaves it out."""

    CONSTANT = "constant"
    """A number, a flag or some bytes are others."""

    STORE = "store"
    """What is written is not, or something else is."""

    HASH_FIELD = "hash field"
    """What is hashed or signed lacks a part, or has two in the other order."""

    EVENT_FIELD = "event field"
    """An event is missing, or has two fields in each other's place."""

    ARITHMETIC = "arithmetic"
    """An operator on numbers or bits is another."""

    CLAMPED = "clamped"
    """A number is at most, or at least, one that the sender of a transaction says."""

    BOOLEAN = "boolean"
    """An and is an or, or a negation is gone."""

    RETURNED = "returned"
    """A function gives something else back."""

    CONTROL = "control"
    """A loop does not end or go on where it should."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Bytes of a source file, and what stands there instead.

    Attributes:
        kind: what is changed.
        line: of the first byte, from 1.
        function: in which it lies; empty outside of all.
        begin: offset of the first byte.
        end: offset behind the last byte.
        replacement: what stands there instead.
    """

    kind: Kind
    line: int
    function: str
    begin: int
    end: int
    replacement: bytes

    def applied(self, source: bytes) -> bytes:
        """Return the source with the change."""
        return source[: self.begin] + self.replacement + source[self.end :]


@dataclass(frozen=True, slots=True)
class Mutant:
    """An edit of a file, with a name that stays when lines move.

    Attributes:
        path: the file, from the root of the tree.
        edit: the change.
        original: what stands there, in one line.
        replacement: what stands there instead, in one line.
        name: twelve hexadecimal digits that follow from path, function, kind and change.
    """

    path: str
    edit: Edit
    original: str
    replacement: str
    name: str

    @property
    def root(self) -> str:
        """The folder to which the file belongs, two names deep at most."""
        return root_of(self.path)


def root_of(path: str) -> str:
    """Return the folder to which a file belongs: `contracts`, `ledger/audit`."""
    return "/".join(path.split("/")[:-1][:2])


def named(path: str, source: bytes, edits: list[Edit]) -> list[Mutant]:
    """Return the mutants of a file, in the order of the edits, each change once.

    Args:
        path: the file, from the root of the tree.
        source: its bytes.
        edits: the changes.
    """
    found: list[Mutant] = []
    seen: Counter[tuple[str, ...]] = Counter()
    changes: set[tuple[int, int, bytes]] = set()
    for edit in edits:
        change = (edit.begin, edit.end, edit.replacement)
        if change in changes or source[edit.begin : edit.end] == edit.replacement:
            continue
        changes.add(change)
        original = _one_line(source[edit.begin : edit.end])
        replacement = _one_line(edit.replacement)
        key = (path, edit.function, edit.kind.value, original, replacement)
        text = "\0".join((*key, str(seen[key])))
        seen[key] += 1
        name = hashlib.sha256(text.encode()).hexdigest()[:12]
        found.append(Mutant(path, edit, original, replacement, name))
    return found


def _one_line(text: bytes) -> str:
    return " ".join(text.decode().split())
