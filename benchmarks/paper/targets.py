"""Targets of strategy I: limits on means, which were set before the runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.paper.scenarios import Results, Scenario, final
from benchmarks.paper.verdict import Claim, ClaimFinding, format_difference

if TYPE_CHECKING:
    from clients.experiments.statistics import Estimate

CLEAN = "clean"
LEAST = 0.8
"""Accuracy that three tenths of attackers have to leave."""
RETAINED_SHARE = 0.98
"""Share of its clean accuracy that strategy I is to keep under attacks on weights."""

SLACK = 1e-9
"""What a mean may miss a limit by: rows have six decimals, and a sum of them some rounding."""


def weights_target(results: Results) -> list[ClaimFinding]:
    """Return whether strategy I keeps 98 % under each attack on weights by a tenth.

    Args:
        results: the rows.
    """
    listed = []
    for place in results.places(2):
        if place.condition.endswith("-weights-10"):
            retained = _kept(results, place, "CMFL-I")
            beside = Scenario(place.experiment, place.condition.replace("-weights", ""), place.axes)
            on_updates = _kept(results, beside, "CMFL-I")
            if retained is not None:
                comparison = "" if on_updates is None else f"; on updates {100 * on_updates:.1f} %"
                calm = Scenario(place.experiment, CLEAN, place.axes)
                lost = results.difference((place, "CMFL-I"), (calm, "CMFL-I"), final)
                holds = (
                    retained >= RETAINED_SHARE - SLACK
                    if lost is not None and lost.count > 1
                    else None
                )
                listed.append(
                    ClaimFinding(str(place), holds, f"keeps {100 * retained:.1f} %{comparison}")
                )
    return listed


WEIGHTS = Claim(
    "CMFL-I",
    "A tenth attack weights: strategy I keeps 98 % of its clean accuracy.",
    f"mean final accuracy at least {RETAINED_SHARE} of the clean one; beside it the same on "
    "updates",
    weights_target,
)


def accepted_none(results: Results) -> list[ClaimFinding]:
    """Return whether strategy I aggregates no attacker in the authors' settings.

    Args:
        results: the rows.
    """
    listed = []
    for place in results.places(2):
        shares = list(
            results.values(place, "CMFL-I", lambda cell: cell.malicious_accepted).values()
        )
        if place.experiment.startswith("authors-") and shares:
            numbers = f"{100 * max(shares):.2f} % of the aggregated"
            listed.append(ClaimFinding(str(place), max(shares) == 0, numbers))
    return listed


AUTHORS = Claim(
    "CMFL-I",
    "In the authors' settings no attacker is aggregated, as in their logs.",
    "no update of an attacker is accepted in any round",
    accepted_none,
)


def limited(
    place: Scenario, one: Estimate, limit: float, numbers: str | None = None
) -> ClaimFinding:
    """Return whether a mean is at least a limit; one seed has no error, and cannot tell.

    Args:
        place: of the finding.
        one: the mean.
        limit: the least that it may be.
        numbers: the finding's text; the mean as a difference if not given.
    """
    holds = None if one.error is None else one.mean >= limit - SLACK
    return ClaimFinding(str(place), holds, format_difference(one) if numbers is None else numbers)


def _kept(results: Results, place: Scenario, method: str) -> float | None:
    """Return the share of its mean clean accuracy that a method keeps; None without rows."""
    calm = Scenario(place.experiment, CLEAN, place.axes)
    attacked, clean = results.values(place, method, final), results.values(calm, method, final)
    # Only seeds that both have: those of a run that was interrupted may differ.
    seeds = sorted(attacked.keys() & clean.keys())
    whole = sum(clean[seed] for seed in seeds)
    return sum(attacked[seed] for seed in seeds) / whole if whole else None
