"""The paper's claims about training without attacks (section V-B)."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.paper.scenarios import (
    Measure,
    Results,
    Scenario,
    final,
    never_aggregated,
    speed,
)
from benchmarks.paper.verdict import (
    Claim,
    ClaimFinding,
    compare_with_margin,
    in_every_scenario,
    wherever,
)
from clients.experiments.rows import CellRow
from clients.experiments.statistics import spearman

SOURCE = "V-B, normal training"
TYPICAL, AS_MANY_AGGREGATED = "FedAvg-trainers", "FedAvg-aggregated"
FIRST, SECOND = "CMFL-I", "CMFL-II"

SLIGHTLY = 0.02
"""What we take "slightly weaker" to mean: two points of accuracy."""

LOW, HIGH = 0.4, 0.8
"""Accuracies of the model on a client below which we call it low, and from which high."""


def _share(test: Callable[[float], bool]) -> Measure:
    def measure(cell: CellRow) -> float | None:
        accuracies = [value for value in cell.client_accuracy or () if value is not None]
        return sum(map(test, accuracies)) / len(accuracies) if accuracies else None

    return measure


def favours_accurate(cell: CellRow) -> float | None:
    """Return Spearman's correlation of times aggregated and accuracy on a client's own tests."""
    pairs = [
        (times, accuracy)
        for times, accuracy in zip(cell.times_aggregated, cell.client_accuracy or (), strict=False)
        if accuracy is not None
    ]
    return spearman([times for times, _ in pairs], [accuracy for _, accuracy in pairs])


def _slightly_weaker(results: Results, place: Scenario) -> list[ClaimFinding]:
    difference = results.difference((place, FIRST), (place, TYPICAL), final)
    return compare_with_margin(str(place), difference, -SLIGHTLY)


CLAIMS = (
    Claim(
        SOURCE,
        "Strategy II is more accurate than typical FL.",
        "final accuracy of II above that of FedAvg over n",
        in_every_scenario(1, SECOND, (TYPICAL,), final),
    ),
    Claim(
        SOURCE,
        "Strategy II is more accurate than FL that aggregates as many (the authors' 4 %).",
        "final accuracy of II above that of FedAvg over m",
        in_every_scenario(1, SECOND, (AS_MANY_AGGREGATED,), final),
    ),
    Claim(
        "abstract; V-B",
        "CMFL (strategy II) converges faster than typical FL.",
        "mean accuracy over all rounds of II above that of FedAvg over n",
        in_every_scenario(1, SECOND, (TYPICAL,), speed),
    ),
    Claim(
        SOURCE,
        "Strategy I has the worst accuracy of the three.",
        "final accuracy of I below those of FedAvg over n and of II",
        in_every_scenario(1, FIRST, (TYPICAL, SECOND), final, above=False),
    ),
    Claim(
        SOURCE,
        "Strategy I converges most slowly of the three.",
        "mean accuracy over all rounds of I below those of FedAvg over n and of II",
        in_every_scenario(1, FIRST, (TYPICAL, SECOND), speed, above=False),
    ),
    Claim(
        SOURCE,
        "Without an attack strategy I is only slightly weaker than typical FL.",
        f"final accuracy of I less that of FedAvg over n above -{SLIGHTLY}",
        wherever(1, _slightly_weaker),
    ),
    Claim(
        SOURCE,
        "Under strategy I a high share of the clients is never aggregated.",
        "share of clients that are never aggregated under I above that of FedAvg over m",
        in_every_scenario(1, FIRST, (AS_MANY_AGGREGATED,), never_aggregated),
    ),
    Claim(
        SOURCE,
        "Strategy II significantly reduces the number of clients that are never aggregated.",
        "that share under II below that under I",
        in_every_scenario(1, SECOND, (FIRST,), never_aggregated, above=False),
    ),
    Claim(
        SOURCE,
        "Strategy II leaves the fewest clients with low accuracy.",
        f"share of clients below {LOW} of II below those of FedAvg over n and of I",
        in_every_scenario(1, SECOND, (TYPICAL, FIRST), _share(LOW.__gt__), above=False),
    ),
    Claim(
        SOURCE,
        "Strategy II has the most clients with high accuracy.",
        f"share of clients from {HIGH} of II above those of FedAvg over n and of I",
        in_every_scenario(1, SECOND, (TYPICAL, FIRST), _share(HIGH.__le__)),
    ),
    Claim(
        SOURCE,
        "Under strategy II clients of low accuracy are aggregated more often than elsewhere.",
        "Spearman of times aggregated and client accuracy of II below those of FedAvg over n and I",
        in_every_scenario(1, SECOND, (TYPICAL, FIRST), favours_accurate, above=False),
    ),
)
