"""The paper's claims about time (section V-E): computation and transmission on one axis."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, pairwise
from math import inf

from benchmarks.paper.scenarios import Results, Scenario, final
from benchmarks.paper.verdict import Claim, ClaimFinding
from clients.experiments.costs import (
    RATES,
    Transmission,
    solo_training_seconds,
    time_axis,
)
from clients.experiments.rows import CellRow
from clients.experiments.statistics import mean_and_error
from ledger.protocol.errors import ConfigurationError

SOURCE = "V-E, efficiency"
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


CLAIMS = (
    Claim(
        SOURCE,
        "CMFL is always faster than BrainTorrent and GossipFL.",
        f"time to {REACHED} of typical FL's final accuracy, of I below both whatever the seeds; "
        "not so where one of them is below I whatever the seeds",
        _sooner(COMMITTEE, DECENTRALISED, WAYS),
    ),
    Claim(
        SOURCE,
        "Typical FL is faster than CMFL overall.",
        "the same time, of FedAvg over n below that of I",
        _sooner(TYPICAL, (COMMITTEE,), WAYS),
    ),
    Claim(
        SOURCE,
        "With the rate the advantage of typical FL becomes smaller.",
        "CMFL's time over typical FL's falls from 1 to 10 and from 10 to 100 Mbit/s",
        _advantage_shrinks,
    ),
    Claim(
        SOURCE,
        "At 100 Mbit/s CMFL overtakes typical FL.",
        "the same time at 100 Mbit/s, of I below that of FedAvg over n",
        _sooner(COMMITTEE, (TYPICAL,), tuple(way for way in WAYS if way[1] == RATES[-1])),
    ),
)
