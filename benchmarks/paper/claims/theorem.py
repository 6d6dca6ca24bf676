"""The paper's claims about convergence (section IV-A, Theorem 1)."""

from __future__ import annotations

from typing import Any

from benchmarks.paper.scenarios import Measure, Results, Scenario, Side, side_of
from benchmarks.paper.verdict import (
    Claim,
    ClaimFinding,
    compare_with_margin,
    format_difference,
    in_every_scenario,
    wherever,
)
from clients.experiments.rows import CellRow

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

    `name` is a field of `benchmarks.paper.theorem.bound.Constants`.
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
