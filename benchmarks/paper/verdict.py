"""Verdicts on claims that are tested in several scenarios.

A verdict is computed: a claim is a test on rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.paper.scenarios import Measure, Results, Scenario, Side, side_of
from clients.experiments.statistics import Estimate

MAX_LISTED = 12
"""Findings that a verdict lists; the others are counted."""


class ClaimAnswer(StrEnum):
    """The answer to a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    PARTLY = "holds only with"
    OPEN = "not decided"
    MISSING = "no rows"


@dataclass(frozen=True, slots=True)
class ClaimFinding:
    """The result of a claim's test in one scenario.

    Attributes:
        where: the place, or what else was tested.
        holds: None if the test cannot tell.
    """

    where: str
    holds: bool | None
    numbers: str


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """The answer to a claim, with its findings."""

    answer: ClaimAnswer
    findings: tuple[ClaimFinding, ...] = ()

    @property
    def sentence(self) -> str:
        """The answer, in how many places, and where it holds if it does not everywhere."""
        where = [finding.where for finding in self.findings if finding.holds]
        untold = sum(finding.holds is None for finding in self.findings)
        if self.answer is ClaimAnswer.MISSING:
            return self.answer
        if self.answer is not ClaimAnswer.PARTLY:
            beside = (
                f"; {untold} cannot tell" if untold and self.answer is ClaimAnswer.FAILS else ""
            )
            return f"{self.answer} ({len(where)} of {len(self.findings)}{beside})"
        more = f" and {len(where) - MAX_LISTED} more" if len(where) > MAX_LISTED else ""
        beside = f" ({untold} of {len(self.findings)} cannot tell)" if untold else ""
        return f"{self.answer} {'; '.join(where[:MAX_LISTED])}{more}{beside}"


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim and its test.

    Attributes:
        source: section of the paper, or who else says it.
    """

    source: str
    sentence: str
    test: str
    findings: Callable[[Results], list[ClaimFinding]]

    def verdict(self, results: Results) -> ClaimVerdict:
        """Return what rows say of it."""
        return verdict_of(self.findings(results))


def verdict_of(findings: Sequence[ClaimFinding]) -> ClaimVerdict:
    """Return what follows from the findings of all places.

    Returns:
        It holds if it does wherever the test can tell; it does not if it nowhere does; else only
        where it does. Places where the test cannot tell decide nothing, except that a claim that
        holds nowhere else than in some of them is not decided.
    """
    decided = [finding for finding in findings if finding.holds is not None]
    if not findings:
        return ClaimVerdict(ClaimAnswer.MISSING)
    if not decided:
        return ClaimVerdict(ClaimAnswer.OPEN, tuple(findings))
    if all(finding.holds for finding in decided):
        answer = ClaimAnswer.HOLDS if len(decided) == len(findings) else ClaimAnswer.PARTLY
    elif any(finding.holds for finding in decided):
        answer = ClaimAnswer.PARTLY
    else:
        answer = ClaimAnswer.FAILS
    return ClaimVerdict(answer, tuple(findings))


def beside_others(
    results: Results,
    place: Scenario,
    method: str,
    others: Sequence[str],
    measure: Measure,
    *,
    above: bool = True,
) -> list[ClaimFinding]:
    """Return whether a method's number is larger than that of every one of some others.

    The numbers shown are the method's less another's, whichever of them is claimed to be larger.

    Args:
        others: with which it is compared, as far as they have rows there.
        above: whether it is claimed to be larger; smaller otherwise.

    Returns:
        One finding, or none where nothing can be compared.
    """
    claimed, opposite = (Side.ABOVE, Side.BELOW) if above else (Side.BELOW, Side.ABOVE)
    sides: dict[str, tuple[Side, Estimate]] = {}
    for other in others:
        difference = results.difference((place, method), (place, other), measure)
        if difference is not None:
            sides[other] = (side_of(difference), difference)
    if not sides:
        return []
    outcomes = {side for side, _ in sides.values()}
    holds: bool | None = None
    if opposite in outcomes:
        holds = False
    elif outcomes == {claimed}:
        holds = True
    numbers = ", ".join(
        f"{format_difference(estimate)} to {other}" for other, (_, estimate) in sides.items()
    )
    return [ClaimFinding(str(place), holds, f"{method}: {numbers}")]


def wherever(
    number: int, test: Callable[[Results, Scenario], list[ClaimFinding]], *words: str
) -> Callable[[Results], list[ClaimFinding]]:
    """Return a test in each place of the experiments of a number whose condition holds a word."""
    return lambda results: [
        finding
        for place in results.places(number)
        if not words or any(word in place.condition for word in words)
        for finding in test(results, place)
    ]


def in_every_scenario(
    number: int,
    method: str,
    others: Sequence[str],
    measure: Measure,
    *words: str,
    above: bool = True,
) -> Callable[[Results], list[ClaimFinding]]:
    """Return the test of one method's number over those of others, wherever they are compared."""
    return wherever(
        number,
        lambda results, place: beside_others(results, place, method, others, measure, above=above),
        *words,
    )


def compare_with_margin(
    where: str, difference: Estimate | None, margin: float, *, above: bool = True
) -> list[ClaimFinding]:
    """Return the finding on a difference above or below a margin."""
    if difference is None:
        return []
    side = side_of(difference, margin)
    claimed = Side.ABOVE if above else Side.BELOW
    holds = None if side in {Side.EVEN, Side.ALONE} else side is claimed
    return [ClaimFinding(where, holds, format_difference(difference))]


def format_difference(difference: Estimate) -> str:
    """Return a difference in words."""
    error = "one seed" if difference.error is None else f"± {difference.error:.4f}"
    return f"{difference.mean:+.4f} {error}"
