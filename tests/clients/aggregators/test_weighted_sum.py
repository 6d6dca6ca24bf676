"""The compiled weighted sum has the bytes of NumPy's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from clients.aggregators import weighted_sum as compiled
from clients.aggregators.mixture import Mixture
from clients.aggregators.weighted_sum import LANES, LEAST_NUMBERS, weighted_sum
from ledger.distances import machine_code
from ledger.distances.machine_code import NoMachineCodeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST = float(np.finfo(np.float32).max)
HOSTILE = st.sampled_from([0.0, -0.0, 1e-45, LARGEST, -LARGEST])
NUMBERS = st.one_of(HOSTILE, st.floats(width=32, allow_nan=False, allow_infinity=False))


def by_numpy(updates: NDArray[np.float32], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    result = np.zeros(updates.shape[1])
    for update, weight in zip(updates, weights, strict=True):
        result += weight * update.astype(np.float64)
    return result


@settings(max_examples=60, deadline=None)
@given(
    arrays.arrays(
        np.float32, st.tuples(st.integers(1, 5), st.integers(1, 2 * LANES + 3)), elements=NUMBERS
    ),
    st.integers(0, 2**32),
)
def test_a_weighted_sum_has_the_bytes_of_numpys(updates: NDArray[np.float32], seed: int) -> None:
    weights = np.random.default_rng(seed).standard_normal(len(updates)) / 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "LEAST_NUMBERS", 1)
        summed = weighted_sum(list(updates), weights.tolist())
    assert summed is not None
    assert summed.tobytes() == by_numpy(updates, weights).tobytes()


def test_a_mixture_adds_long_and_short_updates_alike() -> None:
    for dimension in (LEAST_NUMBERS - 1, LEAST_NUMBERS + 5):
        rng = np.random.default_rng(1)
        updates, weights = rng.standard_normal((4, dimension), dtype=np.float32), rng.random(4)
        weights[2] = 0
        updates[2] = np.inf  # what does not count is not read
        expected = by_numpy(updates[[0, 1, 3]], weights[[0, 1, 3]])
        assert Mixture(list(updates)).combined(weights).tobytes() == expected.tobytes()
        strided = [np.repeat(update, 2)[::2] for update in updates]
        assert Mixture(strided).combined(weights).tobytes() == expected.tobytes()
        assert Mixture(list(updates)).combined(np.zeros(4)).tolist() == [0.0] * dimension


def test_without_machine_code_numpy_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> object:
        raise NoMachineCodeError("the system forbids it")

    updates = [np.ones(LEAST_NUMBERS, dtype=np.float32)]
    compiled._adding_code.cache_clear()
    monkeypatch.setattr(machine_code, "linked", refused)
    try:
        assert weighted_sum(updates, [1.0]) is None
        assert Mixture(updates).combined(np.ones(1)).sum() == LEAST_NUMBERS
    finally:
        compiled._adding_code.cache_clear()
    assert weighted_sum([updates[0].astype(np.float64)], [1.0]) is None
