"""Targets of strategy III under the worst attacks: limits on means, set before the runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.paper.scenarios import Results, Scenario, final
from benchmarks.paper.targets import LEAST, limited
from benchmarks.paper.verdict import Claim
from benchmarks.paper.worst_table import CALM
from clients.experiments.report import format_estimate
from clients.experiments.statistics import mean_and_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.paper.verdict import ClaimFinding
    from clients.experiments.statistics import Estimate

METHOD = "CMFL-III"
AIM = 0.03
"""Accuracy that an attack by three tenths may cost, beside FedAvg without attackers."""

EXPERIMENTS = (
    "robustness-worst",
    *(f"robustness-worst-{name}" for name in ("settings", "writers", "cnn", "femnist")),
)
"""Experiments in which three tenths of the clients attack, at one learning rate."""


def worst_targets() -> tuple[Claim, ...]:
    """Return what strategy III is held to."""
    return (
        Claim(
            METHOD,
            "Nobody attacks: no worse than FedAvg.",
            "mean paired difference at least minus one standard error",
            _beside("FedAvg", lambda one: -(one.error or 0.0), is_attacked=False),
        ),
        Claim(
            METHOD,
            "Three tenths of attackers, every attack: within three points of FedAvg without any.",
            f"mean paired difference at least -{AIM}",
            _beside("FedAvg", lambda _: -AIM, is_other_calm=True),
        ),
        Claim(
            METHOD,
            "Three tenths of attackers, every attack: a usable model.",
            f"mean final accuracy at least {LEAST}",
            _usable,
        ),
    )


def _beside(
    other: str,
    limit: Callable[[Estimate], float],
    *,
    is_attacked: bool = True,
    is_other_calm: bool = False,
) -> Callable[[Results], list[ClaimFinding]]:
    def findings(results: Results) -> list[ClaimFinding]:
        listed = []
        for place in _places(results, is_attacked=is_attacked):
            condition = CALM if is_other_calm else place.condition
            beside = Scenario(place.experiment, condition, place.axes)
            difference = results.difference((place, METHOD), (beside, other), final)
            if difference is not None:
                listed.append(limited(place, difference, limit(difference)))
        return listed

    return findings


def _usable(results: Results) -> list[ClaimFinding]:
    listed = []
    for place in _places(results, is_attacked=True):
        finals = list(results.values(place, METHOD, final).values())
        if finals:
            estimate = mean_and_error(finals)
            listed.append(limited(place, estimate, LEAST, format_estimate(finals, 4)))
    return listed


def _places(results: Results, *, is_attacked: bool) -> list[Scenario]:
    return [
        place
        for place in results.places(2)
        if place.experiment in EXPERIMENTS and (place.condition != CALM) == is_attacked
    ]
