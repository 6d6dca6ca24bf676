"""The confound of "better" in the authors' code: who trains longer moves further.

No claim of the paper's own, but the other reading of two of them: with one epoch of local work a
client's distance follows its number of steps, so that strategy I prefers small clients and II large
ones. If that is why II is better, it is no longer so when everybody takes the same steps.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.paper.scenarios import Results, Scenario, final
from benchmarks.paper.verdict import (
    Claim,
    ClaimFinding,
    compare_with_margin,
    in_every_scenario,
    wherever,
)
from clients.experiments.figures import correlation
from clients.experiments.statistics import mean_and_error

SOURCE = "the authors' code"
EPOCH, STEPS = "epoch", "steps"
AVERAGED = ("FedAvg-trainers",)
STRONG = 0.3
"""Size from which we call a rank correlation one."""


def _correlates(
    method: str, condition: str, margin: float, *, above: bool
) -> Callable[[Results], list[ClaimFinding]]:
    """Return the test of a method's mean rank correlation of times aggregated and samples."""

    def test(results: Results, place: Scenario) -> list[ClaimFinding]:
        values = list(results.values(place, method, correlation).values())
        estimate = mean_and_error(values) if values else None
        return compare_with_margin(str(place), estimate, margin, above=above)

    return wherever(7, test, condition)


CLAIMS = (
    Claim(
        SOURCE,
        "With one epoch strategy I prefers clients with few samples.",
        f"Spearman of times aggregated and n_k below -{STRONG}",
        _correlates("CMFL-I", EPOCH, -STRONG, above=False),
    ),
    Claim(
        SOURCE,
        "With one epoch strategy II prefers clients with many samples.",
        f"Spearman of times aggregated and n_k above {STRONG}",
        _correlates("CMFL-II", EPOCH, STRONG, above=True),
    ),
    Claim(
        SOURCE,
        "With the same steps for all strategy I prefers clients with few samples, too.",
        f"Spearman of times aggregated and n_k below -{STRONG}",
        _correlates("CMFL-I", STEPS, -STRONG, above=False),
    ),
    Claim(
        SOURCE,
        "With the same steps for all strategy II prefers clients with many samples, too.",
        f"Spearman of times aggregated and n_k above {STRONG}",
        _correlates("CMFL-II", STEPS, STRONG, above=True),
    ),
    Claim(
        SOURCE,
        "With one epoch strategy II is more accurate than typical FL.",
        "final accuracy of II above that of FedAvg over n",
        in_every_scenario(7, "CMFL-II", AVERAGED, final, EPOCH),
    ),
    Claim(
        SOURCE,
        "With the same steps for all strategy II is more accurate than typical FL, too.",
        "final accuracy of II above that of FedAvg over n",
        in_every_scenario(7, "CMFL-II", AVERAGED, final, STEPS),
    ),
)
