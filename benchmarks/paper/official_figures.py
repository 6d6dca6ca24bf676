"""The authors' figures compared with ours.

Theirs are read from their published logs (repository Hide-on-bush2/CMFL, one seed each, accuracy of
single rounds); FEMNIST, the hyper-parameters and the committee have no published run. The settings
differ in every direction, so that what can be compared is the order of the methods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.paper.scenarios import Results, Scenario, final, never_aggregated
from clients.experiments.figures import correlation
from clients.experiments.report import DASH, format_estimate, markdown

if TYPE_CHECKING:
    from benchmarks.paper.scenarios import Measure

METHODS = ("FedAvg", "Median", "TrMean", "Krum", "MultiKrum", "CMFL-I", "CMFL-II")
FEDAVG = ("FedAvg-active", "FedAvg-trainers", "FedAvg-aggregated")
"""Which of ours stands for their FedAvg: the first that has rows; without an attack the last, for
theirs has then as many clients as CMFL aggregates, and under one as many as CMFL activates."""

Accuracies = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class OfficialFigure:
    """Official accuracies in one setting.

    Attributes:
        setting: data, attack, learning rate and round.
        floor: accuracy of always answering the commonest class.
        accuracy: of each of `METHODS`; None where there is no log.
        ours: where our rows come nearest to it.
    """

    setting: str
    floor: float
    accuracy: Accuracies
    ours: tuple[Scenario, ...]


def _sent(condition: str) -> tuple[Scenario, ...]:
    return Scenario("robustness-sent140", condition), Scenario("authors-sent140", condition)


OFFICIAL_FIGURES = (
    OfficialFigure(
        "Shakespeare, clean, rate .005, round 2,000",
        0.1863,
        (0.4554, None, None, None, None, 0.1863, 0.4816),
        (Scenario("normal-shakespeare", "clean"),),
    ),
    OfficialFigure(
        "Shakespeare, scaling of weights (a = 0), rate .05, round 500",
        0.1863,
        (0.1863, 0.2519, 0.1863, 0.1863, 0.2525, 0.3371, 0.1863),
        (Scenario("authors-shakespeare", "gradient-scaling-weights-10"),),
    ),
    OfficialFigure(
        "Sentiment140 (1,075 accounts), clean, rate .005, round 1,000",
        0.6208,
        (0.6432, None, None, None, None, 0.6214, 0.6819),
        (Scenario("normal-sent140-rate", "clean"),),
    ),
    OfficialFigure(
        "Sentiment140 (1,075 accounts), clean, rate .01, round 1,000",
        0.6208,
        (0.7062, None, None, None, None, 0.6270, 0.7201),
        (Scenario("normal-sent140", "clean"),),
    ),
    OfficialFigure(
        "Sentiment140 (1,075 accounts), scaling of weights (a = 0), rate .005, round 2,000",
        0.6208,
        (0.6208, 0.6210, 0.6208, 0.6203, 0.6245, 0.6261, 0.6208),
        _sent("gradient-scaling-weights-10"),
    ),
    OfficialFigure(
        "Sentiment140 (1,075 accounts), same value on weights, rate .005, round 2,000",
        0.6208,
        (0.6208, 0.6212, 0.6208, 0.6203, 0.6245, 0.6259, 0.6208),
        (Scenario("robustness-sent140", "same-value-weights-10"),),
    ),
    OfficialFigure(
        "Sentiment140 (1,075 accounts), back-gradient on weights, rate .005, round 2,000",
        0.6208,
        (0.6208, 0.6212, 0.6208, 0.6203, 0.6245, 0.6271, 0.6208),
        _sent("back-gradient-weights-10"),
    ),
    OfficialFigure(
        "Sentiment140 (772 accounts), scaling of weights (a = .5), rate about .3, round 200",
        0.6213,
        (None, None, None, None, None, 0.7011, None),
        (Scenario("robustness-sent140", "gradient-scaling-weights-10"),),
    ),
    OfficialFigure(
        "Sentiment140 (772 accounts), same value on weights, rate about .3, round 200",
        0.6213,
        (None, None, None, None, None, 0.6997, None),
        (Scenario("robustness-sent140", "same-value-weights-10"),),
    ),
    OfficialFigure(
        "Sentiment140 (772 accounts), back-gradient on weights, rate about .3, round 200",
        0.6213,
        (None, None, None, None, None, 0.6810, None),
        (Scenario("robustness-sent140", "back-gradient-weights-10"),),
    ),
)

CLIENT_METHODS = ("FedAvg", "CMFL-I", "CMFL-II")

CLIENTS: tuple[tuple[str, str, tuple[str, str, str], Measure], ...] = (
    (
        "Sentiment140, clean: clients never aggregated",
        "normal-sent140",
        ("0 of 1,075", "141 of 1,075 (.131)", "24 of 1,075 (.022)"),
        never_aggregated,
    ),
    (
        "Sentiment140, clean: Spearman of times aggregated and n_k",
        "normal-sent140",
        ("0.01", "-0.44", "+0.34"),
        correlation,
    ),
    (
        "Shakespeare, clean, one epoch: the same (ours: digits by writer)",
        "confound",
        ("0.01", "-0.92", "+0.94"),
        correlation,
    ),
)
"""Official figures on clients: setting, our experiment, FedAvg / I / II, and our measure."""

ACCEPTED = (
    ("gradient-scaling-weights-10", ("6.75", "0.00", "6.61")),
    ("same-value-weights-10", ("6.82", "0.00", "6.61")),
    ("back-gradient-weights-10", ("6.77", "0.00", "6.47")),
)
"""Attackers among the 65 training clients of Sentiment140, and among the 43 aggregated of I and II,
mean over rounds, by condition."""


def accuracy_table(results: Results) -> list[str]:
    """Return official accuracies, and below each line ours, as lines of Markdown.

    Args:
        results: the rows.
    """
    lines = []
    for anchor in OFFICIAL_FIGURES:
        official = [DASH if value is None else f"{value:.4f}" for value in anchor.accuracy]
        lines.append([anchor.setting, "official", *official, f"{anchor.floor:.4f}"])
        for place in anchor.ours:
            ours = [_ours(results, place, name, final) for name in METHODS]
            if any(value != DASH for value in ours):
                fedavg = [
                    value for value in _named(place, METHODS[0]) if results.cells(place, value)
                ]
                whose = ", ".join([f"ours: {place}", *fedavg[:1]])
                lines.append(["", whose, *ours, _floor(results, place)])
    return markdown(["setting", "whose", *METHODS, "floor"], lines)


def clients_table(results: Results) -> list[str]:
    """Return official figures on clients and ours, as lines of Markdown.

    Args:
        results: the rows.
    """
    lines = []
    for setting, experiment, official, measure in CLIENTS:
        lines.append([setting, "official", *official])
        condition = "epoch" if experiment == "confound" else "clean"
        ours = [
            _ours(results, Scenario(experiment, condition), name, measure)
            for name in CLIENT_METHODS
        ]
        if any(value != DASH for value in ours):
            lines.append(["", f"ours: {experiment}", *ours])
    return markdown(["figure", "whose", *CLIENT_METHODS], lines)


def accepted_table(results: Results) -> list[str]:
    """Return how many attackers train and are aggregated in a round, theirs and ours.

    Args:
        results: the rows.
    """
    lines = []
    for condition, (trained, first, second) in ACCEPTED:
        lines.append([condition, "official", trained, first, second])
        for place in _sent(condition):
            cells = list(results.cells(place, "CMFL-I").values())
            means = [sum(cell.malicious_trained) / max(1, cell.rounds) for cell in cells]
            both = [_aggregated(results, place, name) for name in ("CMFL-I", "CMFL-II")]
            if means:
                lines.append(["", f"ours: {place.experiment}", format_estimate(means, 2), *both])
    return markdown(["attack", "whose", "training", "aggregated, I", "aggregated, II"], lines)


def _aggregated(results: Results, place: Scenario, method: str) -> str:
    cells = results.cells(place, method).values()
    means = [sum(cell.malicious_aggregated) / max(1, cell.rounds) for cell in cells]
    return format_estimate(means, 2) if means else DASH


def _ours(results: Results, place: Scenario, name: str, measure: Measure) -> str:
    for method in _named(place, name):
        values = list(results.values(place, method, measure).values())
        if values:
            return format_estimate(values)
    return DASH


def _named(place: Scenario, name: str) -> tuple[str, ...]:
    """Return our methods that correspond to one of theirs, the nearest first."""
    if name != "FedAvg":
        return (name,)
    return FEDAVG if place.condition in {condition for condition, _ in ACCEPTED} else FEDAVG[::-1]


def _floor(results: Results, place: Scenario) -> str:
    for method in results.methods(place):
        floors = list(results.values(place, method, lambda cell: cell.floor).values())
        if floors:
            return f"{floors[0]:.4f}"
    return DASH
