"""The paper's claims about alpha, omega and epsilon (section V-D)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from benchmarks.paper.scenarios import Results, Scenario, final
from benchmarks.paper.verdict import Claim, ClaimFinding, compare_with_margin, wherever

SOURCE = "V-D, hyper-parameters"
METHOD = "CMFL-I"

CLIFF = -0.1
"""What we take a cliff to be: ten points of accuracy from one value to the last one."""


def _moved(
    axis: str,
    ends: tuple[str, str],
    where: Mapping[str, tuple[str, ...]],
    margin: float,
    *,
    above: bool,
) -> Callable[[Results], list[ClaimFinding]]:
    """Return the test of what moving along one axis does, at fixed labels of the other one."""

    def test(results: Results, place: Scenario) -> list[ClaimFinding]:
        labels = dict(place.axes)
        other = next((name for name in labels if name != axis), "")
        if labels.get(axis) != ends[1] or labels[other] not in where.get(other, ()):
            return []
        start = replace(place, axes=tuple((labels | {axis: ends[0]}).items()))
        difference = results.difference((place, METHOD), (start, METHOD), final)
        text = f"{place.experiment}: {axis} {ends[0]} to {ends[1]}, {other} = {labels[other]}"
        return compare_with_margin(text, difference, margin, above=above)

    return wherever(3, test)


def _cliff(axis: str, start: str) -> Claim:
    """Return the claim that too much of one of the three is disastrous."""
    others = {"alpha", "omega", "epsilon"} - {axis}
    return Claim(
        SOURCE,
        f"Excessive {axis} leads to a cliff-like decline.",
        f"final accuracy at {axis} = 50 less that at {axis} = {start} below {CLIFF}",
        _moved(
            axis,
            (start, "50"),
            dict.fromkeys(others, ("10", "20", "30", "40", "50")),
            CLIFF,
            above=False,
        ),
    )


CLAIMS = (
    Claim(
        SOURCE,
        "Within a suitable range (omega up to 30, epsilon up to 30) more members are better.",
        "final accuracy at omega = 30 above that at omega = 10",
        _moved(
            "omega",
            ("10", "30"),
            {"epsilon": ("10", "20", "30"), "alpha": ("10", "20", "30", "40")},
            0.0,
            above=True,
        ),
    ),
    Claim(
        SOURCE,
        "Within a suitable range more aggregated clients are better.",
        "final accuracy at alpha = 30 above that at alpha = 10",
        _moved(
            "alpha",
            ("10", "30"),
            {"epsilon": ("10", "20"), "omega": ("10", "20", "30", "40")},
            0.0,
            above=True,
        ),
    ),
    _cliff("epsilon", "10"),
    _cliff("omega", "30"),
    _cliff("alpha", "30"),
)
