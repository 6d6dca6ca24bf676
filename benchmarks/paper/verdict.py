"""Cells of all experiments by scenario, methods compared seed by seed, and verdicts on claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from itertools import pairwise
from statistics import fmean

from scipy.special import stdtrit

from clients.experiments.rows import CellRow, ExperimentRows
from clients.experiments.series import Estimate, paired

Measure = Callable[[CellRow], float | None]
"""One number of a cell; None where the cell has none."""


class Side(Enum):
    """The result of a paired t-test at 5 percent."""

    ABOVE = "above"
    BELOW = "below"
    EVEN = "not told apart"
    ALONE = "one seed only"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario in which methods are compared.

    Attributes:
        axes: label of each axis, in the experiment's order.
    """

    experiment: str
    condition: str
    axes: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """Name it in a sentence."""
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
        own, theirs = self.values(*first, measure), self.values(*second, measure)
        seeds = sorted(own.keys() & theirs.keys())
        if not seeds:
            return None
        return paired([own[seed] for seed in seeds], [theirs[seed] for seed in seeds])


def side_of(difference: Estimate, margin: float = 0.0) -> Side:
    """Return the side of a margin on which a difference is, by a t-test at 5 percent."""
    if difference.error is None:
        return Side.ALONE
    critical = float(stdtrit(difference.count - 1, 0.975))
    distance = difference.mean - margin
    if abs(distance) <= critical * difference.error or distance == 0:
        return Side.EVEN
    return Side.ABOVE if distance > 0 else Side.BELOW


def final(cell: CellRow) -> float | None:
    """Return the mean accuracy of the last measured rounds."""
    return cell.final


def speed(cell: CellRow) -> float | None:
    """Return the mean accuracy of all measured rounds: who learns sooner has more."""
    measured = [value for value in cell.accuracy if value is not None]
    return fmean(measured) if measured else None


def jumps(cell: CellRow) -> float | None:
    """Return the mean change of accuracy from one measured round to the next, second half."""
    measured = [value for value in cell.accuracy if value is not None]
    late = measured[len(measured) // 2 :]
    changes = [abs(after - before) for before, after in pairwise(late)]
    return fmean(changes) if changes else None


def never_aggregated(cell: CellRow) -> float | None:
    """Return the share of the clients whose update never entered the model."""
    times = cell.times_aggregated
    return sum(count == 0 for count in times) / len(times) if times else None


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
