"""The fast distances equal the protocol's plain ones, whatever the scale and the company."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clients.scoring import KERNELS, device_distances
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.rules.distance.direction import DIRECTION
from ledger.protocol.rules.distance.l2 import L2
from ledger.protocol.rules.distance.per_tensor import PER_TENSOR
from ledger.protocol.rules.distance.rule import DistanceRule, RelativeMeasure, plain_distances
from ledger.protocol.rules.distance.squared import SQUARED
from ledger.protocol.rules.registry import DISTANCES
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.protocol.rules.distance.rule import Layout

fast = device_distances()
RULES = pytest.mark.parametrize("rule", DISTANCES.values(), ids=list(DISTANCES))


def round_of(vectors: np.ndarray) -> dict[ClientId, np.ndarray]:
    """Updates of clients 0, 10, 20, ..."""
    return {ClientId(10 * place): vector for place, vector in enumerate(vectors)}


def draws(seed: int, count: int, dimension: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, dimension)).astype(np.float32)


def layout_of(dimension: int) -> Layout:
    """Two tensors, cut somewhere in the middle."""
    cut = dimension // 3
    return (("weights", (cut, 1)), ("biases", (dimension - cut,)))


def require_equal(rule: DistanceRule, vectors: np.ndarray, members: Sequence[int]) -> None:
    """Hold the fast distances to a ten-thousandth of what the rule itself tolerates."""
    updates, layout = round_of(vectors), layout_of(vectors.shape[1])
    asked = [ClientId(10 * member) for member in members]
    found = fast(rule, layout, updates, asked)
    expected = plain_distances(rule, layout, updates, asked)
    assert found.dtype == np.float64
    assert found.shape == expected.shape
    measure = rule.among(list(vectors), layout)
    margins = [
        [measure.tolerance(update, distance) for update, distance in zip(vectors, row, strict=True)]
        for row in expected
    ]
    assert (np.abs(found - expected) <= np.array(margins) / 10_000).all()


def test_every_rule_of_the_registry_has_a_kernel() -> None:
    assert set(DISTANCES.values()) == set(KERNELS)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (SQUARED, [[2, 13, 1], [0, 25, 1]]),
        (L2, [[2**0.5, 13**0.5, 1], [0, 5, 1]]),
        (PER_TENSOR, [[2, 5, 1], [0, 7, 1]]),
    ],
    ids=["squared", "l2", "per_tensor"],
)
def test_by_pencil_members_are_rows_as_asked_and_clients_columns_ascending(
    rule: DistanceRule, expected: list[list[float]]
) -> None:
    updates = {
        ClientId(client): np.array(vector, dtype=np.float32)
        for client, vector in ((8, [1, 0]), (5, [3, 4]), (2, [0, 0]), (9, [1, 1]))
    }
    layout = (("a", (1,)), ("b", (1,)))
    found = fast(rule, layout, updates, [ClientId(9), ClientId(2)])
    assert np.allclose(found[:, :3], expected, rtol=1e-15)
    assert found[0, 3] == 0


def test_directions_by_pencil() -> None:
    # Lengths 1, 1, 8, 0: their median is 1, and 8 is four times twice that: f = 16.
    vectors = np.array([[1, 0], [0, 1], [-8, 0], [0, 0]], dtype=np.float32)
    found = fast(DIRECTION, layout_of(2), round_of(vectors), [ClientId(0), ClientId(30)])
    assert found.tolist() == [[0, 2, 64, 4], [4, 4, 4, 4]]


@RULES
@pytest.mark.parametrize("dimension", [1, 2, 7, 2048, 2049, 10_007])
def test_agrees_with_the_plain_rule(rule: DistanceRule, dimension: int) -> None:
    require_equal(rule, draws(0, 9, dimension), [4, 0, 8])


@RULES
@pytest.mark.parametrize("spread", [1.0, 1e-1, 1e-2, 1e-3, 1e-6])
def test_stays_exact_when_updates_are_alike_but_for_a_spread(
    rule: DistanceRule, spread: float
) -> None:
    vectors = (draws(2, 1, 20_000) + spread * draws(3, 9, 20_000)).astype(np.float32)
    require_equal(rule, vectors, [0, 3, 5])


@RULES
@pytest.mark.parametrize("scale", [1e-18, 1e2, 1e4, 1e18])
def test_outliers_do_not_spoil_the_honest_pairs(rule: DistanceRule, scale: float) -> None:
    vectors = draws(5, 9, 5_000)
    vectors[[1, 3]] *= np.float32(scale)
    require_equal(rule, vectors, [0, 1, 2])


@RULES
def test_zeros_and_the_largest_floats_are_no_exception(rule: DistanceRule) -> None:
    largest = np.finfo(np.float32).max
    require_equal(rule, np.array([[largest, -largest], [-largest, largest]], np.float32), [0, 1])
    require_equal(rule, np.zeros((3, 5), dtype=np.float32), [0, 2])
    vectors = draws(6, 5, 40)
    vectors[[1, 2]] = 0
    vectors[4] = vectors[3]
    require_equal(rule, vectors, range(5))


@RULES
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_agrees_with_the_plain_rule_on_any_updates(rule: DistanceRule, data: st.DataObject) -> None:
    count, dimension = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 12))
    number = st.floats(allow_nan=False, allow_infinity=False, width=32)
    values = data.draw(st.lists(number, min_size=count * dimension, max_size=count * dimension))
    vectors = np.array(values, dtype=np.float32).reshape(count, dimension)
    members = data.draw(st.lists(st.integers(0, count - 1), min_size=1, unique=True))
    require_equal(rule, vectors, members)


@pytest.mark.parametrize("rule", [rule for rule in DISTANCES.values() if not rule.needs_all])
@pytest.mark.parametrize("dimension", [1, 650, 2049, 6_151])
def test_a_pair_has_the_same_bytes_in_any_company_where_no_rule_needs_all(
    rule: DistanceRule, dimension: int
) -> None:
    updates, layout = round_of(draws(7, 6, dimension)), layout_of(dimension)
    together = fast(rule, layout, updates, list(updates))
    for row, member in enumerate(updates):
        for column, client in enumerate(updates):
            pair = {member: updates[member], client: updates[client]}
            alone = fast(rule, layout, pair, [member])[0, sorted(pair).index(client)]
            assert alone.tobytes() == together[row, column].tobytes()


@RULES
def test_the_bytes_do_not_depend_on_the_callers_threads(rule: DistanceRule) -> None:
    updates, layout = round_of(draws(8, 20, 9_001)), layout_of(9_001)
    before = torch.get_num_threads()
    try:
        found = set()
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            found.add(fast(rule, layout, updates, list(updates)[:9]).tobytes())
    finally:
        torch.set_num_threads(before)
    assert len(found) == 1


def test_a_rule_without_a_kernel_is_computed_by_its_own_plain_code() -> None:
    def city_blocks(update: np.ndarray, reference: np.ndarray) -> float:
        return float(np.abs(update - reference).sum())

    toy = DistanceRule("toy", lambda _updates, _layout: RelativeMeasure(city_blocks), "blocks")
    updates = round_of(np.array([[0, 0], [3, 4]], dtype=np.float32))
    assert fast(toy, layout_of(2), updates, [ClientId(10)]).tolist() == [[7, 0]]


@RULES
def test_nobody_has_no_distances(rule: DistanceRule) -> None:
    updates = round_of(draws(0, 3, 5))
    assert fast(rule, layout_of(5), updates, []).shape == (0, 3)
    assert fast(rule, layout_of(5), {}, []).shape == (0, 0)


@RULES
def test_updates_of_two_lengths_are_refused(rule: DistanceRule) -> None:
    updates = {ClientId(0): np.zeros(5, np.float32), ClientId(1): np.zeros(4, np.float32)}
    with pytest.raises(ValueError, match="differ in length"):
        fast(rule, layout_of(5), updates, [ClientId(0)])


def test_an_unknown_device_is_refused_before_any_distance() -> None:
    with pytest.raises(ConfigurationError, match="unknown device 'tpu'"):
        device_distances("tpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@RULES
def test_cuda_repeats_its_own_bytes_and_agrees_with_the_cpu(rule: DistanceRule) -> None:
    updates, layout = round_of(draws(9, 12, 200_003)), layout_of(200_003)
    cuda = device_distances("cuda")
    first, again = (cuda(rule, layout, updates, list(updates)[:5]) for _ in range(2))
    assert first.tobytes() == again.tobytes()
    expected = fast(rule, layout, updates, list(updates)[:5])
    np.testing.assert_allclose(first, expected, rtol=1e-13, atol=1e-15)
