"""The paper's claims about training under attack (section V-C)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from benchmarks.paper.verdict import (
    Claim,
    ClaimFinding,
    Measure,
    Results,
    Scenario,
    compare_with_margin,
    final,
    in_every_scenario,
    jumps,
    speed,
    wherever,
)
from clients.experiments.series import mean_and_error

SOURCE = "V-C, robustness"
FIRST, SECOND = "CMFL-I", "CMFL-II"
FEDAVG = ("FedAvg-active", "FedAvg-trainers")
COMPARED = (*FEDAVG, "Median", "TrMean", "Krum", "MultiKrum")
"""The algorithms that the paper compares with; FedAvg as far as an experiment has it."""

ATTACKS = ("gradient-scaling", "same-value", "back-gradient")
CLEAN = "clean"

POINT = 0.01
"""By how much more accurate than typical FL we call it no longer as poor: one point."""

KEPT, LOST = 0.98, 0.9
"""Shares of the clean accuracy: what resists keeps the first, what fails loses the second."""


def _best(
    method: str,
    others: Sequence[str],
    measure: Measure,
    words: tuple[str, ...] = ATTACKS,
    *,
    above: bool = True,
) -> Callable[[Results], list[ClaimFinding]]:
    return in_every_scenario(2, method, others, measure, *words, above=above)


def _keeps(
    method: str, share: float, words: tuple[str, ...], *, on_weights: bool | None = None
) -> Callable[[Results], list[ClaimFinding]]:
    """Return the test of whether a method keeps a share of its clean accuracy, seed by seed.

    The share is of the mean of the clean accuracies of the same experiment.
    """

    def test(results: Results, place: Scenario) -> list[ClaimFinding]:
        calm = replace(place, condition=CLEAN)
        clean = results.values(calm, method, final)
        if not clean or on_weights not in {None, "weights" in place.condition}:
            return []
        # A share of the clean mean: what is tested is attacked - clean + (1 - share) clean > 0.
        margin = -(1 - share) * mean_and_error(list(clean.values())).mean
        difference = results.difference((place, method), (calm, method), final)
        return compare_with_margin(str(place), difference, margin)

    return wherever(2, test, *words)


def _breaks(method: str, words: tuple[str, ...]) -> Callable[[Results], list[ClaimFinding]]:
    opposite = {True: False, False: True, None: None}
    return lambda results: [
        replace(finding, holds=opposite[finding.holds])
        for finding in _keeps(method, LOST, words)(results)
    ]


def _no_better(results: Results, place: Scenario) -> list[ClaimFinding]:
    """Return whether strategy II is nowhere a point above FedAvg."""
    listed = []
    for other in FEDAVG:
        difference = results.difference((place, SECOND), (place, other), final)
        listed += compare_with_margin(f"{place}, {other}", difference, POINT, above=False)
    return listed


ROBUSTNESS_CLAIMS = (
    Claim(
        SOURCE,
        "Strategy I reaches the highest accuracy of all that are compared, under each attack.",
        "final accuracy of I above those of FedAvg, Median, TrMean, Krum and MultiKrum",
        _best(FIRST, COMPARED, final),
    ),
    Claim(
        SOURCE,
        "Strategy I converges fastest of all that are compared, under each attack.",
        "mean accuracy over all rounds of I above those of the others",
        _best(FIRST, COMPARED, speed),
    ),
    Claim(
        "III; V-C",
        "Under attacks on weights strategy I loses nothing.",
        f"final accuracy above {KEPT} of the clean one",
        _keeps(FIRST, KEPT, ATTACKS, on_weights=True),
    ),
    Claim(
        "III; V-C",
        "Under attacks on updates, which is what the paper's text has, strategy I loses nothing.",
        f"final accuracy above {KEPT} of the clean one",
        _keeps(FIRST, KEPT, ATTACKS, on_weights=False),
    ),
    Claim(
        SOURCE,
        "Strategy I withstands the same-value attack.",
        f"final accuracy above {KEPT} of the clean one",
        _keeps(FIRST, KEPT, ("same-value",)),
    ),
    Claim(
        SOURCE,
        "Strategy II does as poorly as typical FL.",
        f"final accuracy of II less that of FedAvg below {POINT}",
        wherever(2, _no_better, *ATTACKS),
    ),
    Claim(
        SOURCE,
        "Median effectively resists the attacks.",
        f"final accuracy of Median above {KEPT} of its clean one",
        _keeps("Median", KEPT, ATTACKS),
    ),
    Claim(
        SOURCE,
        "Trimmed Mean does well under gradient scaling.",
        f"final accuracy of TrMean above {KEPT} of its clean one",
        _keeps("TrMean", KEPT, ("gradient-scaling",)),
    ),
    Claim(
        SOURCE,
        "Trimmed Mean does extremely badly under same-value and back-gradient.",
        f"final accuracy of TrMean below {LOST} of its clean one",
        _breaks("TrMean", ("same-value", "back-gradient")),
    ),
    Claim(
        SOURCE,
        "Krum does poorly under all three attacks.",
        "final accuracy of Krum below those of Median and MultiKrum",
        _best("Krum", ("Median", "MultiKrum"), final, above=False),
    ),
    Claim(
        SOURCE,
        "Krum fluctuates sharply, and Multi-Krum removes that.",
        "mean jump of accuracy in the second half of the rounds of Krum above that of MultiKrum",
        _best("Krum", ("MultiKrum",), jumps),
    ),
    Claim(
        SOURCE,
        "Multi-Krum is the second best.",
        "final accuracy of MultiKrum above those of FedAvg, Median, TrMean and Krum",
        _best("MultiKrum", tuple(name for name in COMPARED if name != "MultiKrum"), final),
    ),
)
