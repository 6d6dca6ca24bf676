"""All codes of the checks, for tests of what holds for each of them."""

from __future__ import annotations

from typing import TypeVar

from ledger.audit.checks import chain, rounds
from ledger.audit.report import Fact, FindingKind, Need

C = TypeVar("C", Fact, Need, FindingKind)

_MODULES = (chain, rounds)


def codes(kind: type[C]) -> list[C]:
    """Return all codes of a kind; one that is used in several files comes once."""
    values = (value for module in _MODULES for value in vars(module).values())
    return list(dict.fromkeys(value for value in values if isinstance(value, kind)))
