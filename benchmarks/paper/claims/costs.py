"""The paper's claims about time and bytes: efficiency (V-E) and complexity (IV-B).

The exponent of a growth is the slope of a straight line through logarithms, over cells in which
only that one size varies. A member scores the other members too, so scoring is C (n + C - 1) |w|:
over a few sizes, that is a little less than 1 in n and a little more in C.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, pairwise
from math import inf
from statistics import median

import numpy as np

from benchmarks.paper.verdict import (
    Claim,
    ClaimFinding,
    Measure,
    Results,
    Scenario,
    final,
    wherever,
)
from clients.experiments.costs import (
    RATES,
    Transmission,
    solo_training_seconds,
    time_axis,
)
from clients.experiments.definition import GROWTH_AXIS, GROWTH_START
from clients.experiments.figures import by_size, sizes_of
from clients.experiments.report import DASH, markdown
from clients.experiments.rows import CellRow
from clients.experiments.series import mean_and_error
from ledger.protocol.errors import ConfigurationError

EFFICIENCY = "V-E, efficiency"
TYPICAL, COMMITTEE = "FedAvg-trainers", "CMFL-I"
DECENTRALISED = ("BrainTorrent", "GossipFL")

REACHED = 0.9
"""Share of typical FL's final accuracy that a system has to reach; the time until then counts."""

Ways = tuple[tuple[Transmission, float], ...]
WAYS: Ways = tuple((model, rate) for model in Transmission for rate in RATES)
"""Every model of transmission at every rate, in Mbit/s."""


def places(results: Results) -> list[Scenario]:
    """Return where systems are compared by time: not where sizes vary."""
    return [place for place in results.places(4) if TYPICAL in results.methods(place)]


def time_to(
    cell: CellRow,
    accuracy: float,
    way: tuple[Transmission, float],
    training: float | None = None,
) -> float | None:
    """Return the simulated time at which a cell first reaches an accuracy, in seconds."""
    try:
        axis = time_axis(cell, *way, training=training)
    except ConfigurationError:
        return None
    pairs = zip(axis, cell.accuracy, strict=False)
    return next((at for at, value in pairs if value is not None and value >= accuracy), inf)


def goal(results: Results, place: Scenario) -> float | None:
    """Return the accuracy that is to be reached at a place; None without typical FL."""
    finals = results.values(place, TYPICAL, final)
    return REACHED * mean_and_error(list(finals.values())).mean if finals else None


def times(
    results: Results, place: Scenario, method: str, transmission: Transmission, rate: float
) -> list[float]:
    """Return the times to the goal of a method's cells, ascending by seed."""
    accuracy = goal(results, place)
    if accuracy is None:
        return []
    cells = results.cells(place, method)
    everybody = (results.cells(place, method_).values() for method_ in results.methods(place))
    alone = solo_training_seconds(chain.from_iterable(everybody))
    way = (transmission, rate)
    reached = [time_to(cells[seed], accuracy, way, alone) for seed in sorted(cells)]
    return [method_ for method_ in reached if method_ is not None]


def _sooner(
    first: str, others: tuple[str, ...], ways: Ways
) -> Callable[[Results], list[ClaimFinding]]:
    """Return the test of whether one system is sooner with every seed than each of the others."""

    def findings(results: Results) -> list[ClaimFinding]:
        listed = []
        for place in places(results):
            for transmission, rate in ways:
                own_times = times(results, place, first, transmission, rate)
                theirs = [times(results, place, other, transmission, rate) for other in others]
                if own_times and all(theirs):
                    where = f"{place.experiment}: {transmission}, {rate:g} Mbit/s"
                    holds = _is_sooner(own_times, theirs)
                    numbers = ", ".join(
                        f"{name} {_span(other)}"
                        for name, other in zip((first, *others), (own_times, *theirs), strict=True)
                    )
                    listed.append(ClaimFinding(where, holds, numbers))
        return listed

    return findings


def _is_sooner(mine: list[float], theirs: list[list[float]]) -> bool | None:
    """Return whether all of a system's times are below all of each of some others."""
    if min(map(len, (mine, *theirs))) < 2:
        return None
    if any(max(times_) < min(mine) for times_ in theirs):
        return False
    return True if all(max(mine) < min(times_) for times_ in theirs) else None


def _span(found: list[float]) -> str:
    return " to ".join(dict.fromkeys(_seconds(seconds) for seconds in (min(found), max(found))))


def _seconds(found: float) -> str:
    return "never" if found == inf else f"{found:.3g} s"


def _advantage_shrinks(results: Results) -> list[ClaimFinding]:
    """Return whether CMFL's time over typical FL's falls from each rate to the next."""
    listed = []
    for place in places(results):
        for transmission in Transmission:
            ratios, seeds = [], []
            for rate in RATES:
                own_times = times(results, place, COMMITTEE, transmission, rate)
                theirs = times(results, place, TYPICAL, transmission, rate)
                if own_times and theirs and max(*own_times, *theirs, 0.0) < inf:
                    ratios.append(mean_and_error(own_times).mean / mean_and_error(theirs).mean)
                    seeds.append(min(len(own_times), len(theirs)))
            if len(ratios) == len(RATES):
                falls = all(after < before for before, after in pairwise(ratios))
                holds = falls if min(seeds) > 1 else None
                numbers = "times as long at 1, 10, 100 Mbit/s: " + ", ".join(
                    f"{r:.3g}" for r in ratios
                )
                listed.append(ClaimFinding(f"{place.experiment}: {transmission}", holds, numbers))
    return listed


EFFICIENCY_CLAIMS = (
    Claim(
        EFFICIENCY,
        "CMFL is always faster than BrainTorrent and GossipFL.",
        f"time to {REACHED} of typical FL's final accuracy, of I below both whatever the seeds; "
        "not so where one of them is below I whatever the seeds",
        _sooner(COMMITTEE, DECENTRALISED, WAYS),
    ),
    Claim(
        EFFICIENCY,
        "Typical FL is faster than CMFL overall.",
        "the same time, of FedAvg over n below that of I",
        _sooner(TYPICAL, (COMMITTEE,), WAYS),
    ),
    Claim(
        EFFICIENCY,
        "With the rate the advantage of typical FL becomes smaller.",
        "CMFL's time over typical FL's falls from 1 to 10 and from 10 to 100 Mbit/s",
        _advantage_shrinks,
    ),
    Claim(
        EFFICIENCY,
        "At 100 Mbit/s CMFL overtakes typical FL.",
        "the same time at 100 Mbit/s, of I below that of FedAvg over n",
        _sooner(COMMITTEE, (TYPICAL,), tuple(way for way in WAYS if way[1] == RATES[-1])),
    ),
)


COMPLEXITY = "IV-B, complexity"
NUMBER = 4
"""Number of the experiments that vary sizes."""

NEAR = 0.25
"""How far from an exponent a measured one may be to be called the same."""

NEGLIGIBLE = 0.05
"""Share of a round's bytes that we call negligible."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Something that grows.

    Attributes:
        ours: those that our own way of doing it leads to expect.
    """

    name: str
    of: Measure
    paper: tuple[int, int, int]
    ours: tuple[int, int, int]


def _scoring(cell: CellRow) -> float | None:
    return cell.seconds.scoring


def _phase(name: str) -> Measure:
    """Return the measure of the bytes on the busiest link in one phase of all rounds."""

    def measure(cell: CellRow) -> float | None:
        value = cell.bytes.get("phases", {}).get(name)
        return None if value is None else float(value)

    return measure


GROWTHS = (
    Growth("scoring, seconds of all members", _scoring, (1, 1, 2), (1, 1, 1)),
    Growth("upload of a trainer, bytes", _phase("updates"), (0, 1, 1), (0, 0, 1)),
    Growth("download of the model, bytes", _phase("model"), (1, 0, 1), (0, 0, 1)),
    Growth("reading of a member, bytes", _phase("reading"), (1, 0, 1), (1, 0, 1)),
)


def exponents(results: Results, of: Measure) -> tuple[float | None, float | None, float | None]:
    """Return the measured exponents of n, C and |w|.

    Returns:
        None for a size that does not vary alone.
    """
    cells = [
        cell
        for rows in results.rows.values()
        for cell in rows.cells
        if cell.number == NUMBER and cell.kind == "cmfl" and GROWTH_AXIS in cell.axes
    ]
    start = next((sizes_of(cell) for cell in cells if cell.axes[GROWTH_AXIS] == GROWTH_START), None)
    if start is None:
        return (None, None, None)
    first, second, third = (
        _slope(by_size(cells, start, place, lambda cell: of(cell) or None)) for place in range(3)
    )
    return first, second, third


def _slope(points: dict[float, list[float]]) -> float | None:
    """Return the slope of the least-squares line through logarithms of medians over seeds."""
    if len(points) < 2:
        return None
    values = [median(points[size]) for size in points]
    # Rounding, so that no growth at all is 0 and not a negative zero.
    return round(float(np.polyfit(np.log(list(points)), np.log(values), 1)[0]), 9) + 0.0


def complexity_table(results: Results) -> list[str]:
    """Return the table of exponents as lines of Markdown; no line without rows."""
    measured_growths = [(growth, exponents(results, growth.of)) for growth in GROWTHS]
    if all(value is None for _, values in measured_growths for value in values):
        return []
    rows = [
        [
            growth.name,
            ", ".join(map(str, growth.paper)),
            ", ".join(map(str, growth.ours)),
            ", ".join(DASH if value is None else f"{value:.2f}" for value in values),
        ]
        for growth, values in measured_growths
    ]
    return markdown(["what", "paper: n, C, |w|", "ours, expected", "ours, measured"], rows)


def _as_the_paper(name: str) -> Callable[[Results], list[ClaimFinding]]:
    """Return the test of whether the measured exponents of all three sizes are the paper's."""
    growth = next(candidate for candidate in GROWTHS if candidate.name == name)

    def findings(results: Results) -> list[ClaimFinding]:
        measured = exponents(results, growth.of)
        if all(value is None for value in measured):
            return []
        pairs = [(value, paper) for value, paper in zip(measured, growth.paper, strict=True)]
        numbers = ", ".join(
            f"in {size} {DASH if value is None else f'{value:.2f}'} (paper: {paper})"
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
            share = mean_and_error(
                [(of.get("votes", 0) + of.get("decision", 0)) / sum(of.values()) for of in counted]
            ).mean
            numbers = f"{100 * share:.1f} % of the bytes"
            listed.append(ClaimFinding(f"{place}, {method}", share < NEGLIGIBLE, numbers))
    return listed


COMPLEXITY_CLAIMS = (
    Claim(
        COMPLEXITY,
        "Scoring takes O(n C |w|^2).",
        f"measured exponents within {NEAR} of the paper's",
        _as_the_paper(GROWTHS[0].name),
    ),
    Claim(
        COMPLEXITY,
        "An upload takes O(C |w|).",
        f"measured exponents within {NEAR} of the paper's; ours is sent once, by its digest",
        _as_the_paper(GROWTHS[1].name),
    ),
    Claim(
        COMPLEXITY,
        "A download takes O(n |w|).",
        f"measured exponents within {NEAR} of the paper's; ours is read side by side",
        _as_the_paper(GROWTHS[2].name),
    ),
    Claim(
        COMPLEXITY,
        "What the consensus protocol sends can be ignored.",
        f"votes and decision are below {NEGLIGIBLE} of the bytes that a round waits for",
        wherever(NUMBER, _consensus_is_negligible),
    ),
)
