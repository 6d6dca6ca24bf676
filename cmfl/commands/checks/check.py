"""One row of what `cmfl doctor` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from ledger.protocol.errors import CmflError

LONGEST = 2_000

Check: TypeAlias = tuple[str, Callable[[], str]]
"""What is checked, and what says in a sentence what it found, or raises what is wrong."""


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """The result of one check.

    Attributes:
        found: a sentence; where something is wrong, it says what to do.
    """

    check: str
    ok: bool
    found: str


def run_checks(checks: Iterable[Check]) -> Iterator[DoctorCheck]:
    """Yield what each check has found."""
    for name, check in checks:
        try:
            found, ok = check(), True
        except CmflError as error:
            found, ok = str(error)[:LONGEST], False
        except OSError as error:
            found, ok = f"{error.filename or ''}: {error.strerror or error}", False
        yield DoctorCheck(name, ok, found)
