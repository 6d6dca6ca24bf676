"""The paper's claims about convergence (section IV-A, Theorem 1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from clients.experiments.canvas import (
    count_rounds,
    draw_line,
    panels,
    slant_names,
    write,
)
from clients.experiments.figures import caption_of
from clients.experiments.rows import CellRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes


SOURCE = "IV-A, Theorem 1"
FEDAVG, FIRST, SECOND = "FedAvg", "CMFL-I", "CMFL-II"
STEP_SIZES = ("theorem", "rate")
"""The theorem's own step sizes, and the constant learning rate, of which it says nothing."""


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


def draw_bound(name: str, cells: Sequence[CellRow], folder: Path) -> list[Path]:
    """Draw an experiment on Theorem 1."""
    methods = series.by_method(cells)
    with panels(len(STEP_SIZES) + 1, size=(3.6, 3.0)) as drawn:
        for axes, step_sizes in zip(drawn.axes, STEP_SIZES, strict=False):
            for place, (method, own) in enumerate(methods.items()):
                for what, shift in (("error", 0), ("bound", len(methods))):
                    line = series.over_rounds(f"{method}, {what}", own, _along(step_sizes, what))
                    draw_line(axes, line, place + shift)
            axes.set(title=BOUND_TITLES[step_sizes], yscale="log")
            count_rounds(axes)
            axes.minorticks_off()
        for axes in drawn.axes[: len(STEP_SIZES)]:
            axes.set_ylabel("F(w) − F*, and its bound")
        _draw_gaps(drawn.axes[-1], methods)
        sentence = (
            "Error and printed bound of Theorem 1 on softmax with an L2 term, whose constants are "
            "the extremes of the path: a lower estimate of the bound."
        )
        return write(drawn, folder, f"{name}-bound", caption_of(sentence, name, cells))


def _along(step_sizes: str, what: str) -> Callable[[CellRow], Sequence[float | None]]:
    return lambda cell: path_of(cell, step_sizes).get(what, ())


def _draw_gaps(axes: Axes, methods: dict[str, list[CellRow]]) -> None:
    for place, (title, key) in enumerate((("φ_min", "least_gap"), ("φ_max", "largest_gap"))):
        points: dict[float, list[float]] = {}
        for at, own in enumerate(methods.values()):
            values = [constant(key)(cell) for cell in own]
            points[float(at)] = [value for value in values if value is not None]
        line = series.line_through(title, points)
        errors = [error or 0.0 for error in line.error]
        axes.errorbar(line.x, line.mean, errors, label=title, fmt="os"[place], color="k", capsize=3)
    axes.set_xticks(range(len(methods)), list(methods))
    slant_names(axes)
    axes.set(title="φ, as seen on the path", xlabel="method", ylabel="φ")
