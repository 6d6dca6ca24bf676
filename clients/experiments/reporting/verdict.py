"""What becomes of a claim when it is tested in several places: holds, does not, or only with ...

Nobody writes a verdict by hand: a claim is a test on rows, and its verdict is what the test says.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from clients.experiments.reporting.results import Results, Side, side_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clients.experiments.reporting.results import Measure, Place
    from clients.experiments.statistics import Estimate

SHOWN = 12
"""Findings that a verdict lists; the others are counted."""


class Answer(StrEnum):
    """What is said of a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    PARTLY = "holds only with"
    OPEN = "not decided"
    MISSING = "no rows"


@dataclass(frozen=True, slots=True)
class Finding:
    """What the test of a claim says in one place.

    Attributes:
        where: the place, or what else was tested.
        holds: None if the test cannot tell.
        numbers: behind it, in words.
    """

    where: str
    holds: bool | None
    numbers: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said of a claim, and on what grounds.

    Attributes:
        answer: in a word.
        findings: of every place.
    """

    answer: Answer
    findings: tuple[Finding, ...] = ()

    @property
    def sentence(self) -> str:
        """The answer, in how many places, and where it holds if it does not everywhere."""
        where = [finding.where for finding in self.findings if finding.holds]
        untold = sum(finding.holds is None for finding in self.findings)
        if self.answer is Answer.MISSING:
            return self.answer
        if self.answer is not Answer.PARTLY:
            beside = f"; {untold} cannot tell" if untold and self.answer is Answer.FAILS else ""
            return f"{self.answer} ({len(where)} of {len(self.findings)}{beside})"
        more = f" and {len(where) - SHOWN} more" if len(where) > SHOWN else ""
        beside = f" ({untold} of {len(self.findings)} cannot tell)" if untold else ""
        return f"{self.answer} {'; '.join(where[:SHOWN])}{more}{beside}"


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim and its test.

    Attributes:
        source: section of the paper, or who else says it.
        sentence: what is claimed.
        test: what is computed, in words.
        findings: computes it.
    """

    source: str
    sentence: str
    test: str
    findings: Callable[[Results], list[Finding]]

    def verdict(self, results: Results) -> Verdict:
        """Return what rows say of it.

        Args:
            results: the rows of all experiments.
        """
        return verdict_of(self.findings(results))


def verdict_of(findings: Sequence[Finding]) -> Verdict:
    """Return what follows from the findings of all places.

    Args:
        findings: of each.

    Returns:
        It holds if it does wherever the test can tell; it does not if it nowhere does; else only
        where it does. Places where the test cannot tell decide nothing, except that a claim that
        holds nowhere else than in some of them is not decided.
    """
    told = [finding for finding in findings if finding.holds is not None]
    if not findings:
        return Verdict(Answer.MISSING)
    if not told:
        return Verdict(Answer.OPEN, tuple(findings))
    if all(finding.holds for finding in told):
        answer = Answer.HOLDS if len(told) == len(findings) else Answer.PARTLY
    elif any(finding.holds for finding in told):
        answer = Answer.PARTLY
    else:
        answer = Answer.FAILS
    return Verdict(answer, tuple(findings))


def is_above(
    results: Results,
    place: Place,
    method: str,
    others: Sequence[str],
    measure: Measure,
) -> list[Finding]:
    """Return whether a method's number is larger than that of every one of some others.

    Args:
        results: the rows.
        place: where.
        method: of which it is claimed.
        others: with which it is compared, as far as they have rows there.
        measure: the number.

    Returns:
        One finding, or none where nothing can be compared.
    """
    sides: dict[str, tuple[Side, Estimate]] = {}
    for other in others:
        difference = results.difference((place, method), (place, other), measure)
        if difference is not None:
            sides[other] = (side_of(difference), difference)
    if not sides:
        return []
    found = {side for side, _ in sides.values()}
    holds: bool | None = None
    if Side.BELOW in found:
        holds = False
    elif found == {Side.ABOVE}:
        holds = True
    numbers = ", ".join(f"{shown(one)} to {other}" for other, (_, one) in sides.items())
    return [Finding(str(place), holds, f"{method}: {numbers}")]


def everywhere(
    number: int, method: str, others: tuple[str, ...], measure: Measure
) -> Callable[[Results], list[Finding]]:
    """Return the test of one method's number over that of others, wherever they are compared.

    Args:
        number: of the experiments.
        method: whose number should be above.
        others: those of all of these.
        measure: the number.
    """

    def findings(results: Results) -> list[Finding]:
        return [
            finding
            for place in results.places(number)
            for finding in is_above(results, place, method, others, measure)
        ]

    return findings


def compared(
    where: str, difference: Estimate | None, margin: float, *, above: bool = True
) -> list[Finding]:
    """Return whether a difference lies above a margin, or below it.

    Args:
        where: what was compared.
        difference: paired over seeds; no finding if there is none.
        margin: in the measure's unit.
        above: which of the two is claimed.
    """
    if difference is None:
        return []
    side = side_of(difference, margin)
    wanted = Side.ABOVE if above else Side.BELOW
    holds = None if side in {Side.EVEN, Side.ALONE} else side is wanted
    return [Finding(where, holds, shown(difference))]


def shown(difference: Estimate) -> str:
    """Return a difference in words."""
    error = "one seed" if difference.error is None else f"± {difference.error:.4f}"
    return f"{difference.mean:+.4f} {error}"
