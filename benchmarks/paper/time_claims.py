"""The paper's claims about time and bytes: efficiency (V-E) and complexity (IV-B).

The exponent of a growth is the slope of a straight line through logarithms, over cells in which
only that one size varies. A member scores the other members too, so scoring is C (n + C - 1) |w|:
over a few sizes, that is a little less than 1 in n and a little more in C.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import chain, pairwise
from math import inf
from operator import attrgetter
from statistics import fmean, median
from typing import NamedTuple

import numpy as np

from benchmarks.paper.claims import FIRST, TYPICAL, final
from benchmarks.paper.verdict import (
    Claim,
    ClaimFinding,
    Claims,
    Measure,
    Results,
    Scenario,
    Test,
    claims_of,
)
from clients.experiments.costs import RATES, Transmission, solo_training_seconds, time_axis
from clients.experiments.definition import GROWTH_AXIS, GROWTH_START
from clients.experiments.figures import by_size, sizes_of
from clients.experiments.report import DASH, markdown
from clients.experiments.rows import CellRow
from ledger.protocol.errors import ConfigurationError

NUMBER = 4  # number of the experiments that compare systems by time, and that vary sizes
DECENTRALISED = ("BrainTorrent", "GossipFL")
REACHED = 0.9
"""Share of typical FL's final accuracy that a system has to reach; the time until then counts."""
LEARNED = 0.02  # how far typical FL must exceed the most frequent class in every run
NEAR = 0.25  # how far from an exponent a measured one may be to be called the same
NEGLIGIBLE = 0.05  # share of a round's bytes that we call negligible


def times(
    results: Results, place: Scenario, method: str, way: tuple[Transmission, float]
) -> list[float]:
    """Return the simulated seconds until each of a method's cells reaches the goal, or infinity."""
    finals = results.values(place, TYPICAL, final)
    if not finals:
        return []
    goal = REACHED * fmean(finals.values())
    all_cells = (results.cells(place, name).values() for name in results.methods(place))
    alone = solo_training_seconds(chain.from_iterable(all_cells))
    reached = []
    for _, cell in sorted(results.cells(place, method).items()):
        with suppress(ConfigurationError):  # a cell without times
            pairs = zip(time_axis(cell, *way, training=alone), cell.accuracy, strict=False)
            ends = (at for at, value in pairs if value is not None and value >= goal)
            reached.append(next(ends, inf))
    return reached


def _has_learned(results: Results, place: Scenario) -> bool:
    """Return whether typical FL exceeds the most frequent class; otherwise any model is in time."""
    cells = results.cells(place, TYPICAL).values()
    return all((cell.final or 0.0) > (cell.floor or 0.0) + LEARNED for cell in cells)


def _sooner(first: str, others: tuple[str, ...], rates: tuple[float, ...] = RATES) -> Test:
    """Return the test of whether one system is sooner with every seed than each of the others."""

    def test(results: Results, place: Scenario) -> list[ClaimFinding]:
        listed = []
        for way in ((model, rate) for model in Transmission for rate in rates):
            own = times(results, place, first, way)
            theirs = [times(results, place, other, way) for other in others]
            if own and all(theirs):
                text = f"{place.experiment}: {way[0]}, {way[1]:g} Mbit/s"
                found = zip((first, *others), (own, *theirs), strict=True)
                numbers = ", ".join(f"{name} {_span(seconds)}" for name, seconds in found)
                holds: bool | None = None
                if min(map(len, (own, *theirs))) >= 2 and _has_learned(results, place):
                    if any(max(other) < min(own) for other in theirs):
                        holds = False
                    elif all(max(own) < min(other) for other in theirs):
                        holds = True
                listed.append(ClaimFinding(text, holds, numbers))
        return listed

    return test


def _span(found: list[float]) -> str:
    ends = ("never" if end == inf else f"{end:.3g} s" for end in (min(found), max(found)))
    return " to ".join(dict.fromkeys(ends))


def _advantage_shrinks(results: Results, place: Scenario) -> list[ClaimFinding]:
    """Return whether CMFL's time over typical FL's falls from each rate to the next."""
    listed = []
    for model in Transmission:
        ratios, seeds = [], []
        for rate in RATES:
            own = times(results, place, FIRST, (model, rate))
            theirs = times(results, place, TYPICAL, (model, rate))
            if own and theirs and max(*own, *theirs, 0.0) < inf:
                ratios.append(fmean(own) / fmean(theirs))
                seeds.append(min(len(own), len(theirs)))
        if len(ratios) == len(RATES):
            falls = all(after < before for before, after in pairwise(ratios))
            shown = ", ".join(f"{ratio:.3g}" for ratio in ratios)
            numbers = f"times as long at 1, 10, 100 Mbit/s: {shown}"
            holds = falls if min(seeds) > 1 and _has_learned(results, place) else None
            listed.append(ClaimFinding(f"{place.experiment}: {model}", holds, numbers))
    return listed


_EFFICIENCY: Claims = {
    "CMFL is always faster than BrainTorrent and GossipFL.": (
        f"time to {REACHED} of typical FL's final accuracy, of I below both whatever the seeds; "
        "not so where one of them is below I whatever the seeds; not decided, here and below, if "
        f"typical FL does not exceed the most frequent class by {LEARNED}",
        _sooner(FIRST, DECENTRALISED),
    ),
    "Typical FL is faster than CMFL overall.": (
        "the same time, of FedAvg over n below that of I",
        _sooner(TYPICAL, (FIRST,)),
    ),
    "With the rate the advantage of typical FL becomes smaller.": (
        "CMFL's time over typical FL's falls from 1 to 10 and from 10 to 100 Mbit/s",
        _advantage_shrinks,
    ),
    "At 100 Mbit/s CMFL overtakes typical FL.": (
        "the same time at 100 Mbit/s, of I below that of FedAvg over n",
        _sooner(FIRST, (TYPICAL,), RATES[-1:]),
    ),
}
EFFICIENCY_CLAIMS = claims_of(NUMBER, "V-E, efficiency", _EFFICIENCY)


class Growth(NamedTuple):
    """A cost that grows with n, C and |w|: the paper's exponents, ours, and the paper's claim."""

    name: str
    of: Measure
    paper: tuple[int, int, int]
    ours: tuple[int, int, int]
    claim: str = ""
    note: str = ""


def _phase(name: str) -> Measure:
    """Return the measure of the bytes on the busiest link in one phase of all rounds."""

    def measure(cell: CellRow) -> float | None:
        value = cell.bytes.get("phases", {}).get(name)
        return None if value is None else float(value)

    return measure


GROWTHS = (
    Growth(
        *("scoring, seconds of all members", attrgetter("seconds.scoring"), (1, 1, 2), (1, 1, 1)),
        "Scoring takes O(n C |w|^2).",
    ),
    Growth(
        *("upload of a trainer, bytes", _phase("updates"), (0, 1, 1), (0, 0, 1)),
        *("An upload takes O(C |w|).", "; ours is sent once, by its digest"),
    ),
    Growth(
        *("download of the model, bytes", _phase("model"), (1, 0, 1), (0, 0, 1)),
        *("A download takes O(n |w|).", "; ours is read side by side"),
    ),
    Growth("reading of a member, bytes", _phase("reading"), (1, 0, 1), (1, 0, 1)),
)


def exponents(results: Results, of: Measure) -> list[float | None]:
    """Return the measured exponents of n, C and |w|; None for a size that does not vary alone."""
    cells = [
        cell
        for rows in results.rows.values()
        for cell in rows.cells
        if cell.number == NUMBER and cell.kind == "cmfl" and GROWTH_AXIS in cell.axes
    ]
    start = next((sizes_of(cell) for cell in cells if cell.axes[GROWTH_AXIS] == GROWTH_START), None)
    if start is None:
        return [None] * 3
    return [_slope(by_size(cells, start, at, lambda cell: of(cell) or None)) for at in range(3)]


def _slope(points: dict[float, list[float]]) -> float | None:
    """Return the slope of the least-squares line through logarithms of medians over seeds."""
    if len(points) < 2:
        return None
    values = [median(points[size]) for size in points]
    # Rounding, so that no growth at all is 0 and not a negative zero.
    return round(float(np.polyfit(np.log(list(points)), np.log(values), 1)[0]), 9) + 0.0


def complexity_table(results: Results) -> list[str]:
    """Return the table of exponents as lines of Markdown; no line without rows."""
    rows = []
    for growth in GROWTHS:
        measured = exponents(results, growth.of)
        if any(value is not None for value in measured):
            expected = [", ".join(map(str, powers)) for powers in (growth.paper, growth.ours)]
            rows.append([growth.name, *expected, ", ".join(map(_two_decimals, measured))])
    head = ["what", "paper: n, C, |w|", "ours, expected", "ours, measured"]
    return markdown(head, rows) if rows else []


def _two_decimals(value: float | None) -> str:
    return DASH if value is None else f"{value:.2f}"


def _as_the_paper(growth: Growth) -> Callable[[Results], list[ClaimFinding]]:
    """Return the test of whether the measured exponents of all three sizes are the paper's."""

    def findings(results: Results) -> list[ClaimFinding]:
        measured = exponents(results, growth.of)
        pairs = list(zip(measured, growth.paper, strict=True))
        if measured == [None] * 3:
            return []
        numbers = ", ".join(
            f"in {size} {_two_decimals(value)} (paper: {paper})"
            for size, (value, paper) in zip(("n", "C", "|w|"), pairs, strict=True)
        )
        holds: bool | None = None
        if any(value is not None and abs(value - paper) > NEAR for value, paper in pairs):
            holds = False
        elif None not in measured:
            holds = True
        return [ClaimFinding("measured exponents", holds, numbers)]

    return findings


def _consensus_is_negligible(results: Results, place: Scenario) -> list[ClaimFinding]:
    listed = []
    for method in results.methods(place):
        cells = [of for of in results.cells(place, method).values() if of.kind == "cmfl"]
        counted = [phases for of in cells if sum((phases := of.bytes.get("phases", {})).values())]
        if counted:
            share = fmean(
                (of.get("votes", 0) + of.get("decision", 0)) / sum(of.values()) for of in counted
            )
            numbers = f"{100 * share:.1f}% of the bytes"
            listed.append(ClaimFinding(f"{place}, {method}", share < NEGLIGIBLE, numbers))
    return listed


_CONSENSUS: Claims = {
    "What the consensus protocol sends can be ignored.": (
        f"votes and decision are below {NEGLIGIBLE} of the bytes that a round waits for",
        _consensus_is_negligible,
    )
}
COMPLEXITY_CLAIMS = (
    *(
        Claim(
            "IV-B, complexity",
            growth.claim,
            f"measured exponents within {NEAR} of the paper's{growth.note}",
            _as_the_paper(growth),
        )
        for growth in GROWTHS
        if growth.claim
    ),
    *claims_of(NUMBER, "IV-B, complexity", _CONSENSUS),
)
