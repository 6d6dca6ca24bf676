"""Cells of all experiments by what they are of, and methods compared seed by seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from statistics import fmean

from scipy.special import stdtrit

from clients.experiments.rows import CellRow, ExperimentRows
from clients.experiments.statistics import Estimate, paired

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
