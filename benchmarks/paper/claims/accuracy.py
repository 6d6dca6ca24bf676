"""The paper's claims about accuracy: normal training, hyper-parameters, committee, confounding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

from benchmarks.paper.verdict import (
    Claim,
    ClaimFinding,
    Measure,
    Results,
    Scenario,
    compare_with_margin,
    final,
    in_every_scenario,
    never_aggregated,
    speed,
    wherever,
)
from clients.experiments.figures import correlation
from clients.experiments.rows import CellRow
from clients.experiments.series import mean_and_error, spearman

NORMAL_TRAINING = "V-B, normal training"
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


NORMAL_CLAIMS = (
    Claim(
        NORMAL_TRAINING,
        "Strategy II is more accurate than typical FL.",
        "final accuracy of II above that of FedAvg over n",
        in_every_scenario(1, SECOND, (TYPICAL,), final),
    ),
    Claim(
        NORMAL_TRAINING,
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
        NORMAL_TRAINING,
        "Strategy I has the worst accuracy of the three.",
        "final accuracy of I below those of FedAvg over n and of II",
        in_every_scenario(1, FIRST, (TYPICAL, SECOND), final, above=False),
    ),
    Claim(
        NORMAL_TRAINING,
        "Strategy I converges most slowly of the three.",
        "mean accuracy over all rounds of I below those of FedAvg over n and of II",
        in_every_scenario(1, FIRST, (TYPICAL, SECOND), speed, above=False),
    ),
    Claim(
        NORMAL_TRAINING,
        "Without an attack strategy I is only slightly weaker than typical FL.",
        f"final accuracy of I less that of FedAvg over n above -{SLIGHTLY}",
        wherever(1, _slightly_weaker),
    ),
    Claim(
        NORMAL_TRAINING,
        "Under strategy I a high share of the clients is never aggregated.",
        "share of clients that are never aggregated under I above that of FedAvg over m",
        in_every_scenario(1, FIRST, (AS_MANY_AGGREGATED,), never_aggregated),
    ),
    Claim(
        NORMAL_TRAINING,
        "Strategy II significantly reduces the number of clients that are never aggregated.",
        "that share under II below that under I",
        in_every_scenario(1, SECOND, (FIRST,), never_aggregated, above=False),
    ),
    Claim(
        NORMAL_TRAINING,
        "Strategy II leaves the fewest clients with low accuracy.",
        f"share of clients below {LOW} of II below those of FedAvg over n and of I",
        in_every_scenario(1, SECOND, (TYPICAL, FIRST), _share(LOW.__gt__), above=False),
    ),
    Claim(
        NORMAL_TRAINING,
        "Strategy II has the most clients with high accuracy.",
        f"share of clients from {HIGH} of II above those of FedAvg over n and of I",
        in_every_scenario(1, SECOND, (TYPICAL, FIRST), _share(HIGH.__le__)),
    ),
    Claim(
        NORMAL_TRAINING,
        "Under strategy II clients of low accuracy are aggregated more often than elsewhere.",
        "Spearman of times aggregated and client accuracy of II below those of FedAvg over n and I",
        in_every_scenario(1, SECOND, (TYPICAL, FIRST), favours_accurate, above=False),
    ),
)


HYPER_PARAMETERS = "V-D, hyper-parameters"
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
        HYPER_PARAMETERS,
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


GRID_CLAIMS = (
    Claim(
        HYPER_PARAMETERS,
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
        HYPER_PARAMETERS,
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


COMMITTEE_MEMBERS = "V-F, committee members"
AXIS = "epsilon"

TRAINERS_ONLY = ", trainers only"
"""Ending of a condition in which attackers are honest on the committee."""

SHARPLY = -0.1
"""What we take a sharp drop to be: ten points of accuracy."""


def trained(cell: CellRow) -> float | None:
    """Return N1: attackers among the training clients, mean over rounds."""
    return fmean(cell.malicious_trained) if cell.malicious_trained else None


def on_committee(cell: CellRow) -> float | None:
    """Return N2: attackers on the committee, mean over rounds."""
    return fmean(cell.malicious_members) if cell.malicious_members else None


def _between(
    ends: tuple[str, str], measure: Measure, margin: float = 0.0, *, above: bool = True
) -> Callable[[Results], list[ClaimFinding]]:
    """Return the test of how a number changes from one epsilon to another."""

    def test(results: Results, place: Scenario) -> list[ClaimFinding]:
        if dict(place.axes).get(AXIS) != ends[1]:
            return []
        start = replace(place, axes=((AXIS, ends[0]),))
        difference = results.difference((place, METHOD), (start, METHOD), measure)
        where = f"{place.experiment}: epsilon {ends[0]} to {ends[1]}"
        return compare_with_margin(where, difference, margin, above=above)

    return wherever(5, test)


def _each_step(measure: Measure) -> Callable[[Results], list[ClaimFinding]]:
    steps = [_between(ends, measure) for ends in pairwise(("10", "20", "30", "40", "50"))]
    return lambda results: [finding for step in steps for finding in step(results)]


def _by_members(results: Results, place: Scenario) -> list[ClaimFinding]:
    others = replace(place, condition=f"{place.condition}{TRAINERS_ONLY}")
    difference = results.difference((place, METHOD), (others, METHOD), final)
    return compare_with_margin(str(place), difference, 0.0)


COMMITTEE_CLAIMS = (
    Claim(
        COMMITTEE_MEMBERS,
        "With epsilon the number of malicious training clients grows (N1).",
        "mean N1 at each epsilon above that at the one before",
        _each_step(trained),
    ),
    Claim(
        COMMITTEE_MEMBERS,
        "With epsilon malicious clients are inevitably mixed into the committee (N2).",
        "mean N2 at each epsilon above that at the one before",
        _each_step(on_committee),
    ),
    Claim(
        COMMITTEE_MEMBERS,
        "A few malicious members do not harm: they improve the model.",
        "final accuracy with attackers that train and serve above that with the same attackers "
        "honest on the committee",
        wherever(5, _by_members),
    ),
    Claim(
        COMMITTEE_MEMBERS,
        "With too many malicious members the model drops sharply.",
        f"final accuracy at epsilon = 50 less that at epsilon = 10 below {SHARPLY}",
        _between(("10", "50"), final, SHARPLY, above=False),
    ),
)


AUTHORS_CODE = "the authors' code"
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


CONFOUND_CLAIMS = (
    Claim(
        AUTHORS_CODE,
        "With one epoch strategy I prefers clients with few samples.",
        f"Spearman of times aggregated and n_k below -{STRONG}",
        _correlates("CMFL-I", EPOCH, -STRONG, above=False),
    ),
    Claim(
        AUTHORS_CODE,
        "With one epoch strategy II prefers clients with many samples.",
        f"Spearman of times aggregated and n_k above {STRONG}",
        _correlates("CMFL-II", EPOCH, STRONG, above=True),
    ),
    Claim(
        AUTHORS_CODE,
        "With the same steps for all strategy I prefers clients with few samples, too.",
        f"Spearman of times aggregated and n_k below -{STRONG}",
        _correlates("CMFL-I", STEPS, -STRONG, above=False),
    ),
    Claim(
        AUTHORS_CODE,
        "With the same steps for all strategy II prefers clients with many samples, too.",
        f"Spearman of times aggregated and n_k above {STRONG}",
        _correlates("CMFL-II", STEPS, STRONG, above=True),
    ),
    Claim(
        AUTHORS_CODE,
        "With one epoch strategy II is more accurate than typical FL.",
        "final accuracy of II above that of FedAvg over n",
        in_every_scenario(7, "CMFL-II", AVERAGED, final, EPOCH),
    ),
    Claim(
        AUTHORS_CODE,
        "With the same steps for all strategy II is more accurate than typical FL, too.",
        "final accuracy of II above that of FedAvg over n",
        in_every_scenario(7, "CMFL-II", AVERAGED, final, STEPS),
    ),
)
