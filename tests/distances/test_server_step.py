"""The compiled server step: the bytes of the plain one, whatever the numbers and the threads."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import distances
from ledger.distances import RANGE, Processor, compiled, fast_server_step, this_processor
from ledger.protocol.rules.distance import plain_server_step
from tests.distances.support import draws
from tests.faults import times

fast = fast_server_step()


def weights_of(count: int) -> list[float]:
    return [(place + 1) / (count + 2) for place in range(count)]


@settings(max_examples=times(60, 2_000))
@given(data=st.data())
def test_any_numbers_give_the_bytes_of_the_plain_step(data: st.DataObject) -> None:
    # Around a vector's eight lanes and groups of four updates; subnormal numbers and -0.0 too.
    dimension, count = data.draw(st.integers(1, 19)), data.draw(st.integers(1, 10))
    number = st.floats(allow_nan=False, allow_infinity=False, width=32)
    size = (count + 1) * dimension
    values = data.draw(st.lists(number, min_size=size, max_size=size))
    model, *updates = np.array(values, dtype=np.float32).reshape(count + 1, dimension)
    weights = data.draw(st.lists(st.floats(-1, 1), min_size=count, max_size=count))
    asked = model, updates, weights, data.draw(st.floats(1e-300, 1e6))
    assert fast(*asked).tobytes() == plain_server_step(*asked).tobytes()


def test_a_product_is_rounded_before_it_is_added() -> None:
    # A fused multiply-add would leave -2^-55 of what the plain step rounds to zero.
    updates = [np.full(9, 1.0, np.float32), np.full(9, 1 - 2.0**-24, np.float32)]
    weights = [2.0**-24 - 2.0**-31 - 1, 1 + 2.0**-31]
    assert math.fsum([weights[0], weights[1], -(2.0**-24) * weights[1]]) == -(2.0**-55)
    for step in (plain_server_step, fast):
        assert step(np.zeros(9, np.float32), updates, weights, 2.0**60).tolist() == [0.0] * 9


def test_subnormal_numbers_and_negative_zeros_are_kept() -> None:
    least = np.float32(2.0**-149)
    model, update = np.array([[least, -0.0, -0.0], [0, 0.0, -0.0]], np.float32).repeat(5, axis=1)
    asked = model, [update] * 5, weights_of(5), 0.5
    assert fast(*asked)[0] == least
    assert fast(*asked).tobytes() == plain_server_step(*asked).tobytes()


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_so(odd: float) -> None:
    model, *updates = draws(1, 7, 20)
    updates[3][9] = odd
    asked = model, updates, weights_of(6), 1.0
    assert np.array_equal(fast(*asked), plain_server_step(*asked), equal_nan=True)
    assert np.isfinite(fast(*asked)).sum() == 19


@pytest.mark.parametrize("dimension", [1, RANGE - 1, RANGE, RANGE + 1, 3 * RANGE + 9])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_neither_ranges_nor_threads_change_a_bit(dimension: int, threads: int) -> None:
    model, *updates = draws(dimension, 7, dimension)
    asked = model, updates, weights_of(6), 0.7
    assert fast_server_step(threads)(*asked).tobytes() == plain_server_step(*asked).tobytes()


def test_an_older_processor_computes_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    if "+fma" not in this_processor().features:
        pytest.skip("needs an x86 processor")
    older = compiled(Processor("haswell", "+avx2,+fma", 2))
    monkeypatch.setattr(distances, "machine_code", lambda: older)
    model, *updates = draws(2, 12, 1_003)
    asked = model, updates, weights_of(11), 1.3
    assert fast(*asked).tobytes() == plain_server_step(*asked).tobytes()


def test_updates_may_lie_anywhere_and_stay_as_they_were(tmp_path: Path) -> None:
    rows, path = draws(5, 4, 1_001), tmp_path / "updates"
    path.write_bytes(b"odd" + rows.tobytes())
    strided = np.repeat(rows, 2, axis=1)[:, ::2]
    whole = np.frombuffer(path.read_bytes(), np.float32, offset=3).reshape(rows.shape)
    mapped = np.memmap(path, np.float32, "r", 3, rows.shape)
    expected = plain_server_step(rows[0], list(rows[1:]), weights_of(3), 1.0).tobytes()
    for moved in (strided, whole, mapped):
        assert fast(moved[0], list(moved[1:]), weights_of(3), 1.0).tobytes() == expected
        assert np.array_equal(moved, rows)


def test_other_types_take_the_plain_step() -> None:
    # Cast to float32, both updates would be equal.
    model, wide = np.zeros(3, np.float32), [np.full(3, 1.0), np.full(3, 1.0 + 1e-9)]
    assert fast(model, wide, [1.0, -1.0], 1.0).all()


def test_without_machine_code_the_step_is_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model, *updates = draws(3, 5, 700)
    asked = model, updates, weights_of(4), 1.0
    compiled_bytes = fast(*asked).tobytes()
    monkeypatch.setattr(distances, "machine_code", lambda: None)
    assert fast(*asked).tobytes() == compiled_bytes


@pytest.mark.parametrize(("length", "weights"), [(8, [1.0, 1.0]), (10, [1.0, 1.0]), (9, [1.0])])
def test_other_lengths_are_refused(length: int, weights: list[float]) -> None:
    updates = [np.ones(9, np.float32), np.ones(length, np.float32)]
    with pytest.raises(ValueError, match="differ in length"):
        fast(np.zeros(9, np.float32), updates, weights, 1.0)
