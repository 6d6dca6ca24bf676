"""Updates and combinations of them: the same sums however many blocks they take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clients.aggregators import mixture as module
from clients.aggregators.mixture import Mixture
from ledger.protocol.rules.aggregation import aggregate
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from numpy.typing import NDArray


def rows(*values: list[float]) -> list[NDArray[np.float32]]:
    return [np.array(one, dtype=np.float32) for one in values]


def drawn(count: int, dimension: int, seed: int = 0) -> list[NDArray[np.float32]]:
    return list(np.random.default_rng(seed).standard_normal((count, dimension), dtype=np.float32))


THREE = Mixture(rows([0, 0], [3, 4], [6, 8]))


def test_distances_by_pencil() -> None:
    assert THREE.squared_distances().tolist() == [[0, 25, 100], [25, 0, 25], [100, 25, 0]]
    assert THREE.distances_from(np.array([3.0, 4.0])).tolist() == [5, 0, 5]


def test_a_combination_of_combinations_by_pencil() -> None:
    halves = THREE.mixed(np.array([[0.5, 0.5, 0], [0, 0.5, 0.5]]))
    assert halves.combined(np.array([1.0, 0.0])).tolist() == [1.5, 2]
    assert halves.squared_distances().tolist() == [[0, 25], [25, 0]]
    whole = halves.mixed(np.array([[0.5, 0.5]]))
    assert whole.combined(np.ones(1)).tolist() == [3, 4]
    assert len(whole) == 1


def test_a_vector_names_the_updates_that_it_is_made_of() -> None:
    halves = THREE.mixed(np.array([[0.5, 0.5, 0], [0, 0.5, 0.5]]))
    assert halves.sources([1]) == (1, 2)
    assert halves.sources([1, 0]) == (0, 1, 2)
    assert THREE.sources([2, 0]) == (0, 2)


def test_no_update_or_one_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no update"):
        Mixture([])
    with pytest.raises(ValueError, match=r"update 1 has shape \(3,\)"):
        Mixture(rows([0, 0], [1, 2, 3]))


def test_distances_of_many_blocks_are_those_of_the_whole_vectors() -> None:
    updates = drawn(4, 2 * module.BLOCK + 5)
    mixture = Mixture(updates).mixed(np.random.default_rng(1).random((3, 4)))
    whole = np.concatenate([block for _, block in mixture.blocks()], axis=1)
    exact = ((whole[:, None] - whole[None]) ** 2).sum(axis=2)
    assert np.allclose(mixture.squared_distances(), exact, rtol=1e-12, atol=0)
    point = whole[0] / 2
    lengths = np.linalg.norm(whole - point, axis=1)
    assert np.allclose(mixture.distances_from(point), lengths, rtol=1e-12, atol=0)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.sampled_from([1, 7, module.BLOCK + 3]), st.integers(0, 9))
def test_a_weighted_sum_equals_the_ledgers_aggregation(
    count: int, dimension: int, seed: int
) -> None:
    updates = drawn(count, dimension, seed)
    samples = np.random.default_rng(seed).integers(1, 1000, count)
    model = drawn(1, dimension, seed + 100)[0]
    expected = aggregate(
        model,
        {ClientId(i): update for i, update in enumerate(updates)},
        {ClientId(i): int(n) for i, n in enumerate(samples)},
        0.7,
    )
    weights = samples.astype(np.float64)
    step = 0.7 * Mixture(updates).combined(weights / weights.sum())
    assert (model.astype(np.float64) - step).astype(np.float32).tobytes() == expected.tobytes()


def test_a_distance_is_independent_of_company_and_order() -> None:
    updates = drawn(5, 40)
    all_of_them = Mixture(updates).squared_distances()
    some = Mixture([updates[i] for i in (4, 1, 2)]).squared_distances()
    assert some.tolist() == all_of_them[np.ix_([4, 1, 2], [4, 1, 2])].tolist()
