"""Which tests are near a mutant: measured once, and learned from what killed the mutants before."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.mutation.results import KILLED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.mutation.mutants import Mutant
    from tests.mutation.results import Result

IN_THE_FUNCTION = 1_000


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run of all tests without any mutant has shown.

    Attributes:
        seconds: of CPU, of each test.
        refusals: tests that meet each refusal of the contract, by its reason.
        lines: tests that run each line, by "path:line".
    """

    seconds: dict[str, float]
    refusals: dict[str, list[str]]
    lines: dict[str, list[str]]


def nearest(
    measured: Measured,
    near: Iterable[str],
    mutant: Mutant,
    results: Mapping[str, Result],
    most_seconds: float,
) -> list[str]:
    """Return the tests to run, in order.

    First what is near; among those, and then among all others, what killed mutants of the same
    function before, what killed others, and what is quick.

    Args:
        measured: all tests.
        near: tests that go first, and always.
        mutant: the change.
        results: of earlier mutants.
        most_seconds: how long the other tests may take together.
    """
    kills: Counter[str] = Counter()
    for result in results.values():
        if result.outcome in KILLED and result.path == mutant.path:
            same = result.function == mutant.edit.function
            kills[result.test] += IN_THE_FUNCTION if same else 1
    first = {test for test in near if test in measured.seconds}
    order = sorted(
        measured.seconds,
        key=lambda test: (test not in first, -kills[test], measured.seconds[test], test),
    )
    chosen, left = [], most_seconds
    for test in order:
        left -= 0 if test in first else measured.seconds[test]
        if test in first or left >= 0:
            chosen.append(test)
    return chosen
