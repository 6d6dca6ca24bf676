"""Updates and combinations of them; compiled sums have the bytes of NumPy's."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from clients import aggregators as module
from clients.aggregators import BLOCK, MOST_ROWS, Mixture, network
from ledger import distances
from ledger.protocol.rules.selection import aggregate
from ledger.protocol.types import ClientId


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
def test_a_weighted_sum_is_the_ledgers_aggregation(count: int, dimension: int, seed: int) -> None:
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


LARGEST = float(np.finfo(np.float32).max)
HOSTILE = st.sampled_from([0.0, -0.0, 1e-45, -1e-45, LARGEST, -LARGEST, 1.0])
NUMBERS = st.one_of(HOSTILE, st.floats(width=32, allow_nan=False, allow_infinity=False))


def mean_of_ranks(updates: NDArray[np.floating], first: int, last: int) -> NDArray[np.floating]:
    return Mixture(list(updates)).mean_of_ranks(first, last)


def mean_of_sorted(updates: NDArray[np.floating], first: int, last: int) -> NDArray[np.floating]:
    chosen = np.sort(updates.astype(np.float64), axis=0)[first:last]
    return np.asarray(chosen.sum(axis=0) / (last - first))


@pytest.mark.parametrize("rows", range(1, 13))
def test_a_network_sorts_every_row_of_zeros_and_ones(rows: int) -> None:
    # A network that sorts these sorts everything (Knuth 5.3.4, Theorem Z).
    values = np.array(list(product((0, 1), repeat=rows))).T
    for first in range(rows):
        ordered = values.copy()
        for low, high in network(rows, first, rows - first // 2):
            pair = ordered[[low, high]]
            ordered[low], ordered[high] = pair.min(axis=0), pair.max(axis=0)
        wanted = slice(first, rows - first // 2)
        assert (ordered[wanted] == np.sort(values, axis=0)[wanted]).all()


def test_a_median_needs_fewer_comparators_than_a_sort() -> None:
    assert len(network(65, 32, 33)) < len(network(65, 0, 65)) == 565
    assert len(network(1, 0, 1)) == 0


@settings(max_examples=60, deadline=None)
@given(
    arrays.arrays(np.float32, st.tuples(st.integers(1, 9), st.integers(1, 131)), elements=NUMBERS),
    st.data(),
)
def test_a_mean_of_ranks_is_that_of_a_sort(updates: Any, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(updates) - 1))
    last = data.draw(st.integers(first + 1, len(updates)))
    expected = mean_of_sorted(updates, first, last)
    for given_ in (updates, updates.astype(np.float64)):
        assert mean_of_ranks(given_, first, last).tobytes() == expected.tobytes()


def test_ranks_are_the_same_in_any_memory_layout() -> None:
    updates = np.random.default_rng(0).standard_normal((7, 2 * BLOCK + 5), dtype=np.float32)
    expected = mean_of_sorted(updates, 2, 5)
    for layout in (updates, np.asfortranarray(updates), np.repeat(updates, 2, axis=1)[:, ::2]):
        assert mean_of_ranks(layout, 2, 5).tobytes() == expected.tobytes()
    assert (updates == np.random.default_rng(0).standard_normal(updates.shape, np.float32)).all()


def test_more_updates_than_a_network_takes_are_sorted_by_numpy() -> None:
    updates = np.random.default_rng(0).standard_normal((MOST_ROWS + 1, 3), dtype=np.float32)
    assert (mean_of_ranks(updates, 9, 11) == mean_of_sorted(updates, 9, 11)).all()


def test_without_machine_code_distances_are_those_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    mixture = Mixture(drawn(6, 700))
    compiled = mixture.squared_distances()
    monkeypatch.setattr(distances, "machine_code", lambda: None)
    assert np.allclose(mixture.squared_distances(), compiled, rtol=1e-13, atol=0)


LENGTHS = st.sampled_from([1, 127, 128, 129, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 130])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), LENGTHS, st.sampled_from([1e-40, 1.0, 1e30]), st.data())
def test_compiled_sums_have_the_bytes_of_numpys(
    count: int, dimension: int, scale: float, data: st.DataObject
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    updates = (scale * rng.standard_normal((count, dimension))).astype(np.float32)
    updates[:, rng.integers(dimension)] = data.draw(NUMBERS)
    weights = np.where(rng.random(count) < 0.3, 0.0, rng.random(count))
    apart = np.empty(updates.size + 1, np.float32)[1:].reshape(updates.shape)  # not aligned
    apart[...] = updates
    for point in (scale * rng.standard_normal(dimension), np.zeros(dimension)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "machine_code", lambda: None)
            by_numpy = Mixture(list(updates)).distances_from(point).tobytes()
            sum_by_numpy = Mixture(list(updates)).combined(weights).tobytes()
            ranks_by_numpy = mean_of_ranks(updates, count // 3, count).tobytes()
        for layout in (apart, np.asfortranarray(updates), updates.astype(np.float64)):
            mixture = Mixture(list(layout))
            assert mixture.distances_from(point).tobytes() == by_numpy
            assert mixture.combined(weights).tobytes() == sum_by_numpy
            assert mixture.mean_of_ranks(count // 3, count).tobytes() == ranks_by_numpy
