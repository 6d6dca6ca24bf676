"""The stages of an aggregation together: what is left out, what is mixed, what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from clients.aggregators.aggregation import Aggregation
from clients.aggregators.pre_aggregators.registry import pre_aggregator_named
from clients.aggregators.registry import aggregator_named
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.aggregators.aggregator import AggregatorSelection

NNM = pre_aggregator_named("NNM", {"f": 1})
BUCKETS = pre_aggregator_named("Bucketing", {"s": 2})
KRUM = aggregator_named("Krum", {"f": 1})


def found(
    aggregation: Aggregation, values: list[float], samples: list[int] | None = None, seed: int = 0
) -> AggregatorSelection | None:
    updates = [np.array([value], dtype=np.float32) for value in values]
    counts = [1] * len(values) if samples is None else samples
    return aggregation.aggregate(updates, counts, np.zeros(1), np.random.default_rng(seed))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_an_update_that_is_not_finite_is_left_out(bad: float) -> None:
    selected = found(Aggregation(), [1, bad, 4], [1, 100, 2])
    assert selected is not None
    assert selected.vector.tolist() == [3]
    assert selected.used == (0, 2)


def test_too_few_finite_updates_are_aggregated_to_nothing() -> None:
    nan = float("nan")
    assert found(Aggregation(), [nan, nan]) is None
    enough = found(Aggregation(KRUM), [1, 2, nan, 3, 4, 100])
    assert enough is not None
    assert enough.used == (1,)
    assert found(Aggregation(KRUM), [1, 2, nan, nan, 4, 100]) is None
    assert found(Aggregation(pre_aggregators=(NNM,)), [1, nan, 3]) is None


def test_means_of_updates_have_equal_weights_and_named_sources() -> None:
    # Each of 0, 1, 9 with its nearest: 0.5, 0.5, 5; their mean, whatever the samples.
    mixed = found(Aggregation(pre_aggregators=(NNM,)), [0, 1, 9], [1, 1, 500])
    assert mixed is not None
    assert mixed.vector.tolist() == pytest.approx([2])
    assert mixed.used == (0, 1, 2)
    # One bucket of two was chosen: two updates are used.
    chosen = found(Aggregation(KRUM, (BUCKETS,)), list(range(10)))
    assert chosen is not None
    assert len(chosen.used) == 2
    assert chosen.vector.tolist() == [sum(chosen.used) / 2]


def test_the_stages_are_taken_in_their_order() -> None:
    values: list[float] = [0, 1, 2, 3, 50]
    buckets_first, mixing_first = (
        found(Aggregation(aggregator_named("Median", {}), stages), values)
        for stages in ((BUCKETS, NNM), (NNM, BUCKETS))
    )
    assert buckets_first is not None
    assert mixing_first is not None
    assert buckets_first.vector.tolist() != mixing_first.vector.tolist()


def test_the_output_count_of_a_stage_feeds_the_next() -> None:
    aggregation = Aggregation(KRUM, (BUCKETS,))
    aggregation.require(9)
    assert aggregation.takes(9)
    assert not aggregation.takes(8)
    with pytest.raises(ConfigurationError, match="Krum with f = 1 of n = 4 updates: 2f"):
        aggregation.require(8)
    with pytest.raises(ConfigurationError, match="NNM with f = 1 of n = 2 updates: 2f < n"):
        Aggregation(KRUM, (BUCKETS, NNM)).require(4)
