"""The paper's claims about convergence (section IV-A, Theorem 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks.paper.verdict import (
    Claim,
    ClaimFinding,
    Measure,
    Results,
    Scenario,
    Side,
    compare_with_margin,
    format_difference,
    in_every_scenario,
    side_of,
    wherever,
)
from clients.experiments import series
from clients.experiments.plots import Drawn, count_rounds, draw_line, new_figure, slant_names
from clients.experiments.rows import CellRow

SOURCE = "IV-A, Theorem 1"
FEDAVG, FIRST, SECOND = "FedAvg", "CMFL-I", "CMFL-II"


def path_of(cell: CellRow, step_sizes: str) -> dict[str, Any]:
    """Return what a cell says of the run with some step sizes; empty if it says nothing."""
    theorem = cell.extra.get("theorem", {})
    path: dict[str, Any] = theorem.get("step_sizes", {}).get(step_sizes, {})
    return path


def constant(name: str) -> Measure:
    """Return the measure of a constant of the bound, as the run at the theorem's steps shows it.

    `name` is a field of `benchmarks.paper.theorem.path.Constants`.
    """
    return lambda cell: (path_of(cell, "theorem").get("constants") or {}).get(name)


def _last_error(cell: CellRow) -> float | None:
    errors: list[float | None] = path_of(cell, "theorem").get("error") or [None]
    return errors[-1]


def _bound_holds(results: Results, place: Scenario) -> list[ClaimFinding]:
    """Return whether the error stays at or below the bound in every round."""
    listed = []
    for method in results.methods(place):
        for seed, cell in results.cells(place, method).items():
            path = path_of(cell, "theorem")
            both = zip(path.get("error", ()), path.get("bound", ()), strict=False)
            pairs = [(error, bound) for error, bound in both if bound is not None]
            if pairs:
                error, bound = pairs[-1]
                holds = all(value <= most for value, most in pairs)
                numbers = f"error {error:.3g}, bound {bound:.3g} after the last round"
                listed.append(ClaimFinding(f"{method}, seed {seed}", holds, numbers))
    return listed


def _faster_with_larger_gap(results: Results, place: Scenario) -> list[ClaimFinding]:
    """Return, for pairs of strategies, whether the one with the larger phi_min has less error."""
    listed: list[ClaimFinding] = []
    for pair in ((FEDAVG, FIRST), (FEDAVG, SECOND), (FIRST, SECOND)):
        sides = ((place, pair[0]), (place, pair[1]))
        gap = results.difference(*sides, constant("least_gap"))
        error = results.difference(*sides, _last_error)
        if gap is None or error is None:
            continue
        where, side = f"{pair[0]} beside {pair[1]}", side_of(gap)
        if side in {Side.ABOVE, Side.BELOW}:
            listed += compare_with_margin(where, error, 0.0, above=side is Side.BELOW)
        else:
            # Whose phi_min is larger is not known, and so not whose error is claimed to be smaller.
            numbers = f"{format_difference(error)}; phi_min {format_difference(gap)}"
            listed.append(ClaimFinding(where, None, numbers))
    return listed


CLAIMS = (
    Claim(
        SOURCE,
        "The error stays below the bound.",
        "F(w) - F* at most the bound, in every round at the theorem's step sizes",
        wherever(6, _bound_holds),
    ),
    Claim(
        SOURCE,
        "Strategy I lowers phi_min.",
        "phi_min of I below that of FedAvg over n",
        in_every_scenario(6, FIRST, (FEDAVG,), constant("least_gap"), above=False),
    ),
    Claim(
        SOURCE,
        "Strategy II raises phi_min.",
        "phi_min of II above that of FedAvg over n",
        in_every_scenario(6, SECOND, (FEDAVG,), constant("least_gap")),
    ),
    Claim(
        SOURCE,
        "A higher phi_min means faster convergence.",
        "of two methods, the one with the larger phi_min has less error after the last round",
        wherever(6, _faster_with_larger_gap),
    ),
)


BOUND_TITLES = {"theorem": "the theorem's step sizes", "rate": "a constant rate"}


def draw_bound(cells: Sequence[CellRow]) -> Iterator[Drawn]:
    """Draw an experiment on Theorem 1."""
    methods = series.by_method(cells)
    figure, (*panels, last) = new_figure(len(BOUND_TITLES) + 1, (3.6, 3.0))
    for axes, (step_sizes, title) in zip(panels, BOUND_TITLES.items(), strict=True):
        for place, (method, own) in enumerate(methods.items()):
            for what, shift in (("error", 0), ("bound", len(methods))):
                found = series.over_rounds(f"{method}, {what}", own, _along(step_sizes, what))
                draw_line(axes, found, place + shift)
        axes.set(title=title, yscale="log", ylabel="F(w) − F*, and its bound")
        count_rounds(axes)
        axes.minorticks_off()
    for marker, (title, key) in zip(
        "os", (("φ_min", "least_gap"), ("φ_max", "largest_gap")), strict=True
    ):
        values = [[constant(key)(cell) for cell in own] for own in methods.values()]
        points = {float(at): [v for v in of if v is not None] for at, of in enumerate(values)}
        line = series.line_through(title, points)
        last.errorbar(line.x, line.mean, line.error, label=title, fmt=marker, color="k", capsize=3)
    last.set_xticks(range(len(methods)), list(methods))
    slant_names(last)
    last.set(title="φ, as seen on the path", xlabel="method", ylabel="φ")
    sentence = (
        "Error and printed bound of Theorem 1 on softmax with an L2 term, whose constants are "
        "the extremes of the path: a lower estimate of the bound."
    )
    yield Drawn(figure, sentence, cells)


def _along(step_sizes: str, what: str) -> Callable[[CellRow], Sequence[float | None]]:
    return lambda cell: path_of(cell, step_sizes).get(what, ())
