"""The aggregators against ByzFL's own, on vectors that were written down once.

Made by `tests/vectors/make_byzfl.py`: random, tied, reversed, zero, near, far and huge vectors.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from clients.aggregators.aggregation import Aggregation
from clients.aggregators.mixture import Mixture
from clients.aggregators.pre_aggregators.registry import PRE_AGGREGATORS, pre_aggregator_named
from clients.aggregators.registry import AGGREGATORS, aggregator_named

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = list[float] | list[list[float]]

PATH = Path(__file__).parents[2] / "vectors" / "byzfl-0.0.11.json"
VECTORS: dict[str, Any] = json.loads(PATH.read_text("utf-8"))
INPUTS = {name: np.array(rows, dtype=np.float32) for name, rows in VECTORS["inputs"].items()}
RNG = np.random.default_rng(0)


def are_equal(found: NDArray[np.float64], expected: Rows) -> bool:
    return np.allclose(found, np.array(expected), rtol=1e-6, atol=1e-6)


def ours(name: str, options: dict[str, Any], n: int) -> tuple[str, dict[str, Any]]:
    """Return what ByzFL's name and options are called here.

    Krum's neighbours are n - f - 2 here and n - f - 1 there: Krum(f) here is its Krum(f + 1).
    """
    if name == "Krum":
        return name, {"f": options["f"] - 1}
    if name == "MultiKrum":
        return name, {"f": options["f"] - 1, "m": n - options["f"]}
    return ("FedAvg" if name == "Average" else name), options


@pytest.mark.parametrize("name", INPUTS)
def test_every_aggregation_is_that_of_byzfl(name: str) -> None:
    updates = INPUTS[name]
    cases = [case for case in VECTORS["aggregations"] if case["inputs"] == name]
    assert len(cases) > 20
    for case in cases:
        stages = [ours(rule, options, len(updates)) for rule, options in case["stages"]]
        pre = tuple(pre_aggregator_named(*stage) for stage in stages if stage[0] in PRE_AGGREGATORS)
        if len(pre) == len(stages):
            rows = Mixture(updates)  # type: ignore[arg-type]
            rows = rows.mixed(pre[0].coefficients(rows, RNG))
            found = np.concatenate([block for _, block in rows.blocks()], axis=1)
        else:
            aggregation = Aggregation(aggregator_named(*stages[-1]), pre)
            last = np.zeros(updates.shape[1])
            selected = aggregation.aggregate(list(updates), [1] * len(updates), last, RNG)
            assert selected is not None, case
            found = selected.vector
        assert are_equal(found, case["expected"]), (case, found)


def test_the_vectors_are_of_every_rule() -> None:
    names = {stage[0] for case in VECTORS["aggregations"] for stage in case["stages"]}
    assert {ours(name, {"f": 1}, 9)[0] for name in names} | {"Bucketing"} == {
        *AGGREGATORS,
        *PRE_AGGREGATORS,
    }


def test_iterated_centered_clipping_equals_byzfl() -> None:
    for case in VECTORS["clipping"]:
        aggregator = aggregator_named("CenteredClipping", case["options"])
        last = np.zeros(6)
        for one in case["rounds"]:
            mixture = Mixture(list(INPUTS[one["inputs"]]))
            last = aggregator.aggregate(mixture, np.ones(len(mixture)), last).vector
            assert are_equal(last, one["expected"])


def test_buckets_are_those_of_byzfl_in_the_same_order() -> None:
    for case in VECTORS["bucketing"]:
        updates = INPUTS[case["inputs"]]
        dealt = np.empty_like(updates)
        # What our stream deals next shall be what ByzFL's dealt next.
        dealt[np.random.default_rng(4).permutation(len(updates))] = updates[case["order"]]
        mixture = Mixture(list(dealt))
        rule = pre_aggregator_named("Bucketing", {"s": case["s"]})
        mixture = mixture.mixed(rule.coefficients(mixture, np.random.default_rng(4)))
        found = np.concatenate([rows for _, rows in mixture.blocks()], axis=1)
        assert are_equal(found, case["expected"])
