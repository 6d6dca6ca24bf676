"""The paper's claims about attackers on the committee (section V-F)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

from benchmarks.paper.scenarios import Measure, Results, Scenario, final
from benchmarks.paper.verdict import Claim, ClaimFinding, compare_with_margin, wherever
from clients.experiments.rows import CellRow

SOURCE = "V-F, committee members"
METHOD = "CMFL-I"
AXIS = "epsilon"

TRAINERS_ONLY = ", trainers only"
"""Ending of a condition in which attackers are honest on the committee."""

SHARPLY = -0.1
"""What we take a sharp drop to be: ten points of accuracy."""


def trained(cell: CellRow) -> float | None:
    """Return N1: attackers among the training clients, mean over rounds."""
    return fmean(cell.malicious_trained) if cell.malicious_trained else None


def on_committee(cell: CellRow) -> float | None:
    """Return N2: attackers on the committee, mean over rounds."""
    return fmean(cell.malicious_members) if cell.malicious_members else None


def _between(
    ends: tuple[str, str], measure: Measure, margin: float = 0.0, *, above: bool = True
) -> Callable[[Results], list[ClaimFinding]]:
    """Return the test of how a number changes from one epsilon to another."""

    def test(results: Results, place: Scenario) -> list[ClaimFinding]:
        if dict(place.axes).get(AXIS) != ends[1]:
            return []
        start = replace(place, axes=((AXIS, ends[0]),))
        difference = results.difference((place, METHOD), (start, METHOD), measure)
        where = f"{place.experiment}: epsilon {ends[0]} to {ends[1]}"
        return compare_with_margin(where, difference, margin, above=above)

    return wherever(5, test)


def _each_step(measure: Measure) -> Callable[[Results], list[ClaimFinding]]:
    steps = [_between(ends, measure) for ends in pairwise(("10", "20", "30", "40", "50"))]
    return lambda results: [finding for step in steps for finding in step(results)]


def _by_members(results: Results, place: Scenario) -> list[ClaimFinding]:
    others = replace(place, condition=f"{place.condition}{TRAINERS_ONLY}")
    difference = results.difference((place, METHOD), (others, METHOD), final)
    return compare_with_margin(str(place), difference, 0.0)


CLAIMS = (
    Claim(
        SOURCE,
        "With epsilon the number of malicious training clients grows (N1).",
        "mean N1 at each epsilon above that at the one before",
        _each_step(trained),
    ),
    Claim(
        SOURCE,
        "With epsilon malicious clients are inevitably mixed into the committee (N2).",
        "mean N2 at each epsilon above that at the one before",
        _each_step(on_committee),
    ),
    Claim(
        SOURCE,
        "A few malicious members do not harm: they improve the model.",
        "final accuracy with attackers that train and serve above that with the same attackers "
        "honest on the committee",
        wherever(5, _by_members),
    ),
    Claim(
        SOURCE,
        "With too many malicious members the model drops sharply.",
        f"final accuracy at epsilon = 50 less that at epsilon = 10 below {SHARPLY}",
        _between(("10", "50"), final, SHARPLY, above=False),
    ),
)
