"""Growth of time and bytes with n, C and |w|, and the paper's complexity section (IV-B).

The exponent of each is the slope of a straight line through logarithms, over cells in which only
that one size varies. A member scores the other members too, so that scoring is C (n + C - 1) |w|:
measured over a few sizes, that is a little less than 1 in n and a little more in C.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np

from benchmarks.paper.scenarios import Measure, Results, Scenario
from benchmarks.paper.verdict import Claim, ClaimFinding, wherever
from clients.experiments.definition import GROWTH_AXIS, GROWTH_START
from clients.experiments.figures import by_size, sizes_of
from clients.experiments.report import DASH, markdown
from clients.experiments.rows import CellRow
from clients.experiments.statistics import mean_and_error

SOURCE = "IV-B, complexity"
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


def table(results: Results) -> list[str]:
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


CLAIMS = (
    Claim(
        SOURCE,
        "Scoring takes O(n C |w|^2).",
        f"measured exponents within {NEAR} of the paper's",
        _as_the_paper(GROWTHS[0].name),
    ),
    Claim(
        SOURCE,
        "An upload takes O(C |w|).",
        f"measured exponents within {NEAR} of the paper's; ours is sent once, by its digest",
        _as_the_paper(GROWTHS[1].name),
    ),
    Claim(
        SOURCE,
        "A download takes O(n |w|).",
        f"measured exponents within {NEAR} of the paper's; ours is read side by side",
        _as_the_paper(GROWTHS[2].name),
    ),
    Claim(
        SOURCE,
        "What the consensus protocol sends can be ignored.",
        f"votes and decision are below {NEGLIGIBLE} of the bytes that a round waits for",
        wherever(NUMBER, _consensus_is_negligible),
    ),
)
