"""JSON as the documents are written, read, and compared field by field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_LONGEST = 120


@dataclass(frozen=True, slots=True)
class Difference:
    """A field of a document that differs from what the run leads to.

    Attributes:
        field: its path, such as `predicate.audit.outcome` or `components[2].name`.
        recorded: the document's value as JSON; empty if it has none.
        derived: the run's value as JSON; empty if it has none.
        reason: why a file or a signature, which has no value, is not the right one; else empty.
    """

    field: str
    recorded: str
    derived: str
    reason: str = ""

    @property
    def sentence(self) -> str:
        """The difference in words."""
        if self.reason:
            return f"{self.field} {self.reason}"
        match self.recorded, self.derived:
            case "", derived:
                return f"{self.field} is missing, and must be {derived}"
            case recorded, "":
                return f"{self.field} is {recorded}, and must not be there"
            case recorded, derived:
                return f"{self.field} is {recorded}, and must be {derived}"

    def as_dict(self) -> dict[str, str | None]:
        """Return it as plain data for JSON."""
        recorded = self.recorded or self.reason or None
        values = {"recorded": recorded, "derived": self.derived or None}
        return {"field": self.field, **values}


def json_bytes(value: Any) -> bytes:
    """Return plain data as the bytes of a document."""
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()


def differences(recorded: Any, derived: Any, field: str = "") -> Iterator[Difference]:
    """Yield the fields in which a document differs from the derived one.

    Types count: true is not 1, and 1.0 is not 1. No deeper than the derived document is looked at.
    """
    if type(recorded) is not type(derived):
        yield Difference(field or "document", _shown(recorded), _shown(derived))
    elif isinstance(derived, dict):
        for name in derived.keys() | recorded.keys():
            yield from _member(recorded, derived, name, f"{field}.{name:.80}".removeprefix("."))
    elif isinstance(derived, list):
        for index in range(max(len(derived), len(recorded))):
            pair = dict(enumerate(recorded)), dict(enumerate(derived))
            yield from _member(*pair, index, f"{field}[{index}]")
    elif recorded != derived:
        yield Difference(field or "document", _shown(recorded), _shown(derived))


def _member(recorded: Any, derived: Any, name: str | int, field: str) -> Iterator[Difference]:
    if name not in recorded:
        yield Difference(field, "", _shown(derived[name]))
    elif name not in derived:
        yield Difference(field, _shown(recorded[name]), "")
    else:
        yield from differences(recorded[name], derived[name], field)


def _shown(value: Any) -> str:
    # A container may be too deep or too large to be written.
    if isinstance(value, dict | list):
        return "{...}" if isinstance(value, dict) else "[...]"
    text = json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
