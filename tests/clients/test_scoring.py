"""Distances between updates: exact where it matters, whatever the scale."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from clients.scoring import squared_distances


def plain(updates: np.ndarray, references: np.ndarray) -> np.ndarray:
    """The definition, pair by pair in float64."""
    result = np.zeros((len(references), len(updates)))
    for c, member in enumerate(references.astype(np.float64)):
        for k, update in enumerate(updates.astype(np.float64)):
            difference = update - member
            result[c, k] = float((difference * difference).sum())
    return result


def draws(seed: int, count: int, dimension: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, dimension)).astype(np.float32)


def test_by_pencil_members_are_rows_and_trainers_columns() -> None:
    updates = np.array([[0, 0], [3, 4], [1, 0]], dtype=np.float32)
    references = np.array([[0, 0], [1, 1]], dtype=np.float32)
    distances = squared_distances(updates, references)
    assert distances.dtype == np.float64
    assert distances.tolist() == [[0, 25, 1], [2, 13, 1]]


@pytest.mark.parametrize("dimension", [1, 7, 2048, 2049, 10_007])
def test_agrees_with_the_plain_loop(dimension: int) -> None:
    updates, references = draws(0, 9, dimension), draws(1, 4, dimension)
    np.testing.assert_allclose(
        squared_distances(updates, references), plain(updates, references), rtol=1e-12
    )


@pytest.mark.parametrize("spread", [1.0, 1e-1, 1e-2, 1e-3, 1e-6])
def test_stays_exact_when_updates_are_alike_but_for_a_spread(spread: float) -> None:
    common = draws(2, 1, 20_000)
    updates = (common + spread * draws(3, 9, 20_000)).astype(np.float32)
    references = (common + spread * draws(4, 4, 20_000)).astype(np.float32)
    np.testing.assert_allclose(
        squared_distances(updates, references), plain(updates, references), rtol=1e-12
    )


@pytest.mark.parametrize("scale", [1e2, 1e4, 1e18])
def test_outliers_do_not_spoil_the_honest_pairs(scale: float) -> None:
    updates, references = draws(5, 9, 5_000), draws(6, 4, 5_000)
    updates[3] *= np.float32(scale)
    references[1] *= np.float32(scale)
    np.testing.assert_allclose(
        squared_distances(updates, references), plain(updates, references), rtol=1e-12
    )


def test_the_largest_floats_do_not_overflow() -> None:
    largest = np.finfo(np.float32).max
    updates = np.array([[largest, -largest]], dtype=np.float32)
    assert squared_distances(updates, -updates) == pytest.approx(8 * float(largest) ** 2)


@given(
    arrays(np.float32, (5, 3), elements=st.floats(-(2**20), 2**20, width=32)),
)
def test_is_never_negative_and_zero_only_for_equal_updates(updates: np.ndarray) -> None:
    distances = squared_distances(updates, updates)
    assert (distances >= 0).all()
    assert np.array_equal(distances, distances.T)
    assert (np.diag(distances) == 0).all()


@pytest.mark.parametrize("dimension", [1, 650, 2049, 6_151])
def test_a_pair_has_the_same_bytes_in_any_company(dimension: int) -> None:
    updates, references = draws(7, 6, dimension), draws(8, 3, dimension)
    together = squared_distances(updates, references)
    for c in range(3):
        for k in range(6):
            alone = squared_distances(updates[k : k + 1], references[c : c + 1])
            assert alone.tobytes() == together[c, k].tobytes()


def test_no_updates_have_no_distances() -> None:
    assert squared_distances(draws(0, 0, 5), draws(1, 3, 5)).shape == (3, 0)


def test_another_width_or_a_number_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="differ in d"):
        squared_distances(draws(0, 2, 5), draws(1, 2, 1))
    with pytest.raises(ValueError, match="differ in d"):
        squared_distances(draws(0, 2, 5), draws(1, 2, 5)[0])
    bad = draws(0, 2, 5)
    bad[1, 2] = np.nan
    for pair in ((bad, draws(1, 2, 5)), (draws(1, 2, 5), bad)):
        with pytest.raises(ValueError, match="not finite"):
            squared_distances(*pair)
