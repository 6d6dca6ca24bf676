"""Cells of all experiments by scenario, methods compared seed by seed, and verdicts on claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from scipy.special import stdtrit

from clients.experiments.rows import CellRow, ExperimentRows
from clients.experiments.series import Estimate, paired

MAX_LISTED = 12  # findings that a verdict lists; the others are counted
Measure: TypeAlias = Callable[[CellRow], float | None]
"""One number of a cell; None where the cell has none."""


class Scenario(NamedTuple):
    """A scenario in which methods are compared, with its label on each axis."""

    experiment: str
    condition: str
    axes: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        labels = [f"{axis} = {label}" for axis, label in self.axes]
        return ", ".join([f"{self.experiment}: {self.condition}", *labels])


class Results:
    """The cells of all experiments."""

    def __init__(self, rows: Mapping[str, ExperimentRows]) -> None:
        self.rows = rows
        self._cells: dict[tuple[Scenario, str], dict[int, CellRow]] = {}
        for name, experiment in rows.items():
            for cell in experiment.cells:
                place = Scenario(name, cell.condition, tuple(cell.axes.items()))
                self._cells.setdefault((place, cell.method), {})[cell.seed] = cell

    def places(self, number: int) -> list[Scenario]:
        """Return where the experiments of a number compare, in the order of their rows."""
        scenarios = (
            place
            for (place, _), cells in self._cells.items()
            if next(iter(cells.values())).number == number
        )
        return list(dict.fromkeys(scenarios))

    def cells(self, place: Scenario, method: str) -> Mapping[int, CellRow]:
        """Return a method's cells by seed; empty where there are none."""
        return self._cells.get((place, method), {})

    def methods(self, place: Scenario) -> list[str]:
        return [method for where, method in self._cells if where == place]

    def values(self, place: Scenario, method: str, measure: Measure) -> dict[int, float]:
        """Return a number of a method's cells by seed, without those that have none."""
        values = {seed: measure(cell) for seed, cell in self.cells(place, method).items()}
        return {seed: value for seed, value in values.items() if value is not None}

    def difference(
        self, first: tuple[Scenario, str], second: tuple[Scenario, str], measure: Measure
    ) -> Estimate | None:
        """Return a number of one method less that of another, paired by seed."""
        return paired(self.values(*first, measure), self.values(*second, measure))


def is_above(difference: Estimate, margin: float = 0.0) -> bool | None:
    """Return whether a difference is above a margin, by a paired t-test at 5%; None if unclear."""
    if difference.error is None:
        return None
    critical = float(stdtrit(difference.count - 1, 0.975))
    distance = difference.mean - margin
    if abs(distance) <= critical * difference.error or distance == 0:
        return None
    return distance > 0


def format_difference(difference: Estimate) -> str:
    """Return a difference in words."""
    error = "one seed" if difference.error is None else f"± {difference.error:.4f}"
    return f"{difference.mean:+.4f} {error}"


class ClaimAnswer(StrEnum):
    """The answer to a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    PARTLY = "holds only with"
    OPEN = "not decided"
    MISSING = "no rows"


class ClaimFinding(NamedTuple):
    """The result of a claim's test in one place; `holds` is None if the test cannot tell."""

    where: str
    holds: bool | None
    numbers: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of a section of the paper, or of another source, and its test in words and code."""

    source: str
    sentence: str
    test: str
    findings: Callable[[Results], list[ClaimFinding]]


def answer_to(findings: Sequence[ClaimFinding]) -> ClaimAnswer:
    """Return the answer that follows from the findings of all places."""
    decided = [finding.holds for finding in findings if finding.holds is not None]
    if not findings:
        return ClaimAnswer.MISSING
    if not decided:
        return ClaimAnswer.OPEN
    if all(decided) and len(decided) == len(findings):
        return ClaimAnswer.HOLDS
    return ClaimAnswer.PARTLY if any(decided) else ClaimAnswer.FAILS


def verdict_of(findings: Sequence[ClaimFinding]) -> str:
    """Return the answer, in how many places, and where it holds if it does not everywhere."""
    answer = answer_to(findings)
    where = [finding.where for finding in findings if finding.holds]
    untold = sum(finding.holds is None for finding in findings)
    if answer is ClaimAnswer.MISSING:
        return answer
    if answer is not ClaimAnswer.PARTLY:
        beside = f"; {untold} cannot tell" if untold and answer is ClaimAnswer.FAILS else ""
        return f"{answer} ({len(where)} of {len(findings)}{beside})"
    more = f" and {len(where) - MAX_LISTED} more" if len(where) > MAX_LISTED else ""
    beside = f" ({untold} of {len(findings)} cannot tell)" if untold else ""
    return f"{answer} {'; '.join(where[:MAX_LISTED])}{more}{beside}"


Test: TypeAlias = Callable[[Results, Scenario], list[ClaimFinding]]
"""The findings at one place: none where the place is not of the claim, or has no rows."""


Claims: TypeAlias = dict[str, tuple[str, *tuple[Test, ...]]]
"""Sentences, each with its test in words and in code."""


def claims_of(number: int, source: str, claims: Claims) -> tuple[Claim, ...]:
    """Return the claims of a source, tested in every place of the experiments of a number."""

    def everywhere(*tests: Test) -> Callable[[Results], list[ClaimFinding]]:
        return lambda results: [
            finding
            for test in tests
            for place in results.places(number)
            for finding in test(results, place)
        ]

    return tuple(
        Claim(source, sentence, words, everywhere(*tests))
        for sentence, (words, *tests) in claims.items()
    )


def where(words: Sequence[str], test: Test) -> Test:
    """Return a test of the places alone whose condition has one of some words."""
    return lambda results, place: (
        test(results, place) if any(word in place.condition for word in words) else []
    )


def compared(method: str, others: Sequence[str], measure: Measure, *, above: bool = True) -> Test:
    """Return the test of whether a method's number is above, or below, that of each other one."""

    def test(results: Results, place: Scenario) -> list[ClaimFinding]:
        found = {
            other: results.difference((place, method), (place, other), measure) for other in others
        }
        differences = {other: one for other, one in found.items() if one is not None}
        if not differences:
            return []
        sides = {is_above(difference) for difference in differences.values()}
        holds = False if (not above) in sides else True if sides == {above} else None
        numbers = ", ".join(f"{format_difference(d)} to {o}" for o, d in differences.items())
        return [ClaimFinding(str(place), holds, f"{method}: {numbers}")]

    return test


def compare_with_margin(
    where: str, difference: Estimate | None, margin: float, *, above: bool = True
) -> list[ClaimFinding]:
    """Return the finding on a difference above or below a margin."""
    if difference is None:
        return []
    side = is_above(difference, margin)
    holds = None if side is None else side is above
    return [ClaimFinding(where, holds, format_difference(difference))]
