"""The paper's claims about accuracy, attacks and convergence, each with its test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from statistics import fmean
from typing import Any

from benchmarks.paper import verdict
from benchmarks.paper.verdict import (
    ClaimFinding,
    Claims,
    Measure,
    Results,
    Scenario,
    Test,
    claims_of,
    compare_with_margin,
    compared,
    where,
)
from clients.experiments.figures import correlation
from clients.experiments.rows import CellRow
from clients.experiments.series import mean_and_error, spearman

FEDAVG, FIRST, SECOND = "FedAvg", "CMFL-I", "CMFL-II"
TYPICAL, AS_MANY = "FedAvg-trainers", "FedAvg-aggregated"
"""FedAvg over the n trainers, and over as many as are aggregated; `FedAvg` is over all active."""
SLIGHTLY = 0.02  # what we take "slightly weaker" to mean: two points of accuracy
LOW, HIGH = 0.4, 0.8
"""Accuracies of the model on a client below which we call it low, and from which high."""
CLIFF = -0.1  # what we take a cliff to be: ten points of accuracy from one value to the last one
SHARPLY = -0.1  # what we take a sharp drop to be: ten points of accuracy
STRONG = 0.3  # size from which we call a rank correlation one
POINT = 0.01  # by how much more accurate than typical FL we call it no longer as poor: one point
KEPT, LOST = 0.98, 0.9
"""Shares of the clean accuracy: what resists keeps the first, what fails loses the second."""
final: Measure = attrgetter("final")


def _mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values; None without any."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def speed(cell: CellRow) -> float | None:
    """Return the mean accuracy of all measured rounds: a method that learns sooner has more."""
    return _mean(cell.accuracy)


def jumps(cell: CellRow) -> float | None:
    """Return the mean change of accuracy from one measured round to the next, second half."""
    measured = [value for value in cell.accuracy if value is not None]
    late = measured[len(measured) // 2 :]
    return _mean(abs(after - before) for before, after in pairwise(late))


def never_aggregated(cell: CellRow) -> float | None:
    """Return the share of the clients whose update never entered the model."""
    times = cell.times_aggregated
    return sum(count == 0 for count in times) / len(times) if times else None


def clients_with(test: Callable[[float], bool]) -> Measure:
    """Return the measure of the share of the clients on which the last model is so accurate."""
    return lambda cell: _mean(test(one) for one in cell.client_accuracy or () if one is not None)


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


_ACCURATE: Claims = {
    "Strategy II is more accurate than typical FL.": (
        "final accuracy of II above that of FedAvg over n",
        compared(SECOND, (TYPICAL,), final),
    ),
    "Strategy II is more accurate than FL that aggregates as many (the authors' 4%).": (
        "final accuracy of II above that of FedAvg over m",
        compared(SECOND, (AS_MANY,), final),
    ),
}
_FAST: Claims = {
    "CMFL (strategy II) converges faster than typical FL.": (
        "mean accuracy over all rounds of II above that of FedAvg over n",
        compared(SECOND, (TYPICAL,), speed),
    )
}
_NORMAL: Claims = {
    "Strategy I has the worst accuracy of the three.": (
        "final accuracy of I below those of FedAvg over n and of II",
        compared(FIRST, (TYPICAL, SECOND), final, above=False),
    ),
    "Strategy I converges most slowly of the three.": (
        "mean accuracy over all rounds of I below those of FedAvg over n and of II",
        compared(FIRST, (TYPICAL, SECOND), speed, above=False),
    ),
    "Without an attack strategy I is only slightly weaker than typical FL.": (
        f"final accuracy of I less that of FedAvg over n above -{SLIGHTLY}",
        _slightly_weaker,
    ),
    "Under strategy I a high share of the clients is never aggregated.": (
        "share of clients that are never aggregated under I above that of FedAvg over m",
        compared(FIRST, (AS_MANY,), never_aggregated),
    ),
    "Strategy II significantly reduces the number of clients that are never aggregated.": (
        "that share under II below that under I",
        compared(SECOND, (FIRST,), never_aggregated, above=False),
    ),
    "Strategy II leaves the fewest clients with low accuracy.": (
        f"share of clients below {LOW} of II below those of FedAvg over n and of I",
        compared(SECOND, (TYPICAL, FIRST), clients_with(LOW.__gt__), above=False),
    ),
    "Strategy II has the most clients with high accuracy.": (
        f"share of clients from {HIGH} of II above those of FedAvg over n and of I",
        compared(SECOND, (TYPICAL, FIRST), clients_with(HIGH.__le__)),
    ),
    "Under strategy II clients of low accuracy are aggregated more often than elsewhere.": (
        "Spearman of times aggregated and client accuracy of II below those of FedAvg over n and I",
        compared(SECOND, (TYPICAL, FIRST), favours_accurate, above=False),
    ),
}
NORMAL_CLAIMS = (
    *claims_of(1, "V-B, normal training", _ACCURATE),
    *claims_of(1, "abstract; V-B", _FAST),
    *claims_of(1, "V-B, normal training", _NORMAL),
)


def _moved(
    axis: str,
    ends: tuple[str, str],
    at: Mapping[str, str],
    margin: float = 0.0,
    measure: Measure = final,
    *,
    above: bool = True,
) -> Test:
    """Return the test of strategy I along one axis, at some labels of each other axis."""

    def test(results: Results, place: Scenario) -> list[ClaimFinding]:
        labels = dict(place.axes)
        others = {name: label for name, label in labels.items() if name != axis}
        if labels.get(axis) != ends[1]:
            return []
        if any(label not in at.get(name, "").split() for name, label in others.items()):
            return []
        start = place._replace(axes=tuple((labels | {axis: ends[0]}).items()))
        difference = results.difference((place, FIRST), (start, FIRST), measure)
        fixed = [f"{name} = {label}" for name, label in others.items()]
        text = ", ".join([f"{place.experiment}: {axis} {ends[0]} to {ends[1]}", *fixed])
        return compare_with_margin(text, difference, margin, above=above)

    return test


def _cliff(axis: str, start: str) -> Claims:
    """Return the claim that too much of one of the three is disastrous."""
    every = dict.fromkeys({"alpha", "omega", "epsilon"} - {axis}, "10 20 30 40 50")
    return {
        f"Excessive {axis} leads to a cliff-like decline.": (
            f"final accuracy at {axis} = 50 less that at {axis} = {start} below {CLIFF}",
            _moved(axis, (start, "50"), every, CLIFF, above=False),
        )
    }


_GRID: Claims = {
    "Within a suitable range (omega up to 30, epsilon up to 30) more members are better.": (
        "final accuracy at omega = 30 above that at omega = 10",
        _moved("omega", ("10", "30"), {"epsilon": "10 20 30", "alpha": "10 20 30 40"}),
    ),
    "Within a suitable range more aggregated clients are better.": (
        "final accuracy at alpha = 30 above that at alpha = 10",
        _moved("alpha", ("10", "30"), {"epsilon": "10 20", "omega": "10 20 30 40"}),
    ),
    **_cliff("epsilon", "10"),
    **_cliff("omega", "30"),
    **_cliff("alpha", "30"),
}
GRID_CLAIMS = claims_of(3, "V-D, hyper-parameters", _GRID)


def trained(cell: CellRow) -> float | None:
    """Return N1: attackers among the training clients, mean over rounds."""
    return _mean(cell.malicious_trained)


def on_committee(cell: CellRow) -> float | None:
    """Return N2: attackers on the committee, mean over rounds."""
    return _mean(cell.malicious_members or ())


def _by_members(results: Results, place: Scenario) -> list[ClaimFinding]:
    # In the other condition the attackers are honest on the committee.
    others = place._replace(condition=f"{place.condition}, trainers only")
    difference = results.difference((place, FIRST), (others, FIRST), final)
    return compare_with_margin(str(place), difference, 0.0)


STEPS = (("10", "20"), ("20", "30"), ("30", "40"), ("40", "50"))
_COMMITTEE: Claims = {
    "With epsilon the number of malicious training clients grows (N1).": (
        "mean N1 at each epsilon above that at the one before",
        *(_moved("epsilon", ends, {}, measure=trained) for ends in STEPS),
    ),
    "With epsilon malicious clients are inevitably mixed into the committee (N2).": (
        "mean N2 at each epsilon above that at the one before",
        *(_moved("epsilon", ends, {}, measure=on_committee) for ends in STEPS),
    ),
    "A few malicious members do not harm: they improve the model.": (
        "final accuracy with attackers that train and serve above that with the same attackers "
        "honest on the committee",
        _by_members,
    ),
    "With too many malicious members the model drops sharply.": (
        f"final accuracy at epsilon = 50 less that at epsilon = 10 below {SHARPLY}",
        _moved("epsilon", ("10", "50"), {}, SHARPLY, above=False),
    ),
}
COMMITTEE_CLAIMS = claims_of(5, "V-F, committee members", _COMMITTEE)


def _correlates(method: str, condition: str, *, above: bool) -> Test:
    """Return the test of a method's mean rank correlation of times aggregated and samples."""

    def test(results: Results, place: Scenario) -> list[ClaimFinding]:
        values = list(results.values(place, method, correlation).values())
        estimate = mean_and_error(values) if values else None
        margin = STRONG if above else -STRONG
        return compare_with_margin(str(place), estimate, margin, above=above)

    return where((condition,), test)


_CONFOUND: Claims = {}
for _word, _start, _end in (
    ("epoch", "With one epoch", ""),
    ("steps", "With the same steps for all", ", too"),
):
    _CONFOUND |= {
        f"{_start} strategy I prefers clients with few samples{_end}.": (
            f"Spearman of times aggregated and n_k below -{STRONG}",
            _correlates(FIRST, _word, above=False),
        ),
        f"{_start} strategy II prefers clients with many samples{_end}.": (
            f"Spearman of times aggregated and n_k above {STRONG}",
            _correlates(SECOND, _word, above=True),
        ),
    }
_CONFOUND |= {
    "With one epoch strategy II is more accurate than typical FL.": (
        "final accuracy of II above that of FedAvg over n",
        where(("epoch",), compared(SECOND, (TYPICAL,), final)),
    ),
    "With the same steps for all strategy II is more accurate than typical FL, too.": (
        "final accuracy of II above that of FedAvg over n",
        where(("steps",), compared(SECOND, (TYPICAL,), final)),
    ),
}
CONFOUND_CLAIMS = claims_of(7, "the authors' code", _CONFOUND)


ATTACKS = ("gradient-scaling", "same-value", "back-gradient")
COMPARED = (FEDAVG, TYPICAL, "Median", "TrMean", "Krum", "MultiKrum")
"""The algorithms that the paper compares with; FedAvg as far as an experiment has it."""


def _attacked(
    method: str, others: Sequence[str], measure: Measure = final, *, above: bool = True
) -> Test:
    return where(ATTACKS, compared(method, others, measure, above=above))


def _keeps(method: str, share: float, *words: str, on_weights: bool | None = None) -> Test:
    """Return the test of whether a method keeps a share of its mean clean accuracy."""

    def test(results: Results, place: Scenario) -> list[ClaimFinding]:
        calm = place._replace(condition="none")
        clean = results.values(calm, method, final)
        if not clean or on_weights not in {None, "weights" in place.condition}:
            return []
        # A share of the clean mean: what is tested is attacked - clean + (1 - share) clean > 0.
        margin = -(1 - share) * mean_and_error(list(clean.values())).mean
        difference = results.difference((place, method), (calm, method), final)
        return compare_with_margin(str(place), difference, margin)

    return where(words, test)


def _breaks(results: Results, place: Scenario) -> list[ClaimFinding]:
    """Return whether Trimmed Mean loses a share of its clean accuracy."""
    kept = _keeps("TrMean", LOST, "same-value", "back-gradient")(results, place)
    return [one._replace(holds=None if one.holds is None else not one.holds) for one in kept]


def _no_better(results: Results, place: Scenario) -> list[ClaimFinding]:
    """Return whether strategy II is nowhere a point above FedAvg."""
    listed = []
    for other in (FEDAVG, TYPICAL):
        difference = results.difference((place, SECOND), (place, other), final)
        listed += compare_with_margin(f"{place}, {other}", difference, POINT, above=False)
    return listed


_BEST: Claims = {
    "Strategy I reaches the highest accuracy of all that are compared, under each attack.": (
        "final accuracy of I above those of FedAvg, Median, TrMean, Krum and MultiKrum",
        _attacked(FIRST, COMPARED),
    ),
    "Strategy I converges fastest of all that are compared, under each attack.": (
        "mean accuracy over all rounds of I above those of the others",
        _attacked(FIRST, COMPARED, speed),
    ),
}
_UNHARMED: Claims = {
    "Under attacks on weights strategy I loses nothing.": (
        f"final accuracy above {KEPT} of the clean one",
        _keeps(FIRST, KEPT, *ATTACKS, on_weights=True),
    ),
    "Under attacks on updates, which is what the paper's text has, strategy I loses nothing.": (
        f"final accuracy above {KEPT} of the clean one",
        _keeps(FIRST, KEPT, *ATTACKS, on_weights=False),
    ),
}
_ROBUST: Claims = {
    "Strategy I withstands the same-value attack.": (
        f"final accuracy above {KEPT} of the clean one",
        _keeps(FIRST, KEPT, "same-value"),
    ),
    "Strategy II does as poorly as typical FL.": (
        f"final accuracy of II less that of FedAvg below {POINT}",
        where(ATTACKS, _no_better),
    ),
    "Median effectively resists the attacks.": (
        f"final accuracy of Median above {KEPT} of its clean one",
        _keeps("Median", KEPT, *ATTACKS),
    ),
    "Trimmed Mean does well under gradient scaling.": (
        f"final accuracy of TrMean above {KEPT} of its clean one",
        _keeps("TrMean", KEPT, "gradient-scaling"),
    ),
    "Trimmed Mean does extremely badly under same-value and back-gradient.": (
        f"final accuracy of TrMean below {LOST} of its clean one",
        _breaks,
    ),
    "Krum does poorly under all three attacks.": (
        "final accuracy of Krum below those of Median and MultiKrum",
        _attacked("Krum", ("Median", "MultiKrum"), above=False),
    ),
    "Krum fluctuates sharply, and Multi-Krum removes that.": (
        "mean jump of accuracy in the second half of the rounds of Krum above that of MultiKrum",
        _attacked("Krum", ("MultiKrum",), jumps),
    ),
    "Multi-Krum is the second best.": (
        "final accuracy of MultiKrum above those of FedAvg, Median, TrMean and Krum",
        _attacked("MultiKrum", COMPARED[:-1]),
    ),
}
ROBUSTNESS_CLAIMS = (
    *claims_of(2, "V-C, robustness", _BEST),
    *claims_of(2, "III; V-C", _UNHARMED),
    *claims_of(2, "V-C, robustness", _ROBUST),
)


def theorem_of(cell: CellRow, step_sizes: str = "theorem") -> dict[str, Any]:
    """Return a cell's path at the theorem's step sizes, or at a constant `rate`; else nothing."""
    extra: Any = cell.extra
    path: dict[str, Any] = extra.get("theorem", {}).get("step_sizes", {}).get(step_sizes, {})
    return path


def constant(name: str) -> Measure:
    """Return the measure of a constant of the bound: a field of `theorem.Constants`."""
    return lambda cell: (theorem_of(cell).get("constants") or {}).get(name)


def _bound_holds(results: Results, place: Scenario) -> list[ClaimFinding]:
    """Return whether the error stays at or below the bound in every round."""
    listed = []
    for method in results.methods(place):
        for seed, cell in results.cells(place, method).items():
            path = theorem_of(cell)
            both = zip(path.get("error", ()), path.get("bound", ()), strict=False)
            pairs = [(error, bound) for error, bound in both if None not in (error, bound)]
            if pairs:
                error, bound = pairs[-1]
                holds = all(value <= most for value, most in pairs)
                numbers = f"error {error:.3g}, bound {bound:.3g} after the last round"
                listed.append(ClaimFinding(f"{method}, seed {seed}", holds, numbers))
    return listed


def _faster_with_larger_gap(results: Results, place: Scenario) -> list[ClaimFinding]:
    """Return, for pairs of strategies, whether the one with the larger phi_min has less error."""
    listed: list[ClaimFinding] = []
    for one, other in ((FEDAVG, FIRST), (FEDAVG, SECOND), (FIRST, SECOND)):
        sides = ((place, one), (place, other))
        gap = results.difference(*sides, constant("least_gap"))
        error = results.difference(
            *sides, lambda cell: (theorem_of(cell).get("error") or [None])[-1]
        )
        if gap is None or error is None:
            continue
        text, side = f"{one} beside {other}", verdict.is_above(gap)
        if side is not None:
            listed += compare_with_margin(text, error, 0.0, above=not side)
        else:
            # The larger phi_min is unknown, and so is the error that the claim has smaller.
            shown = verdict.format_difference
            listed.append(ClaimFinding(text, None, f"{shown(error)}; phi_min {shown(gap)}"))
    return listed


_THEOREM: Claims = {
    "The error stays below the bound.": (
        "F(w) - F* at most the bound, in every round at the theorem's step sizes",
        _bound_holds,
    ),
    "Strategy I lowers phi_min.": (
        "phi_min of I below that of FedAvg over n",
        compared(FIRST, (FEDAVG,), constant("least_gap"), above=False),
    ),
    "Strategy II raises phi_min.": (
        "phi_min of II above that of FedAvg over n",
        compared(SECOND, (FEDAVG,), constant("least_gap")),
    ),
    "A higher phi_min means faster convergence.": (
        "of two methods, the one with the larger phi_min has less error after the last round",
        _faster_with_larger_gap,
    ),
}
THEOREM_CLAIMS = claims_of(6, "IV-A, Theorem 1", _THEOREM)
