"""A pair's distance has the same bytes, whoever computes it and whoever else is in the call."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.distances.fast import fast_distances
from ledger.distances.streaming import RANGE
from ledger.protocol.rules.distance import SQUARED
from ledger.protocol.types import ClientId
from tests.distances.support import ALL, CODES, RULES, draws, round_of
from tests.faults import times

if TYPE_CHECKING:
    from ledger.protocol.rules.distance import DistanceRule

fast = fast_distances()


@RULES
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("dimension", [650, 2 * RANGE + 9])
def test_threads_tiles_and_processors_make_no_difference(
    rule: DistanceRule, code: str, dimension: int
) -> None:
    updates = round_of(draws(8, 11, dimension))
    asked = rule, None, updates, list(updates)[:6]
    assert CODES[code]()(*asked).tobytes() == fast(*asked).tobytes()


@pytest.mark.parametrize("code", ["one thread", "blocked"])
@pytest.mark.parametrize("dimension", [1, 650, 513, RANGE + 1])
def test_a_pair_alone_has_its_bytes_in_company(dimension: int, code: str) -> None:
    rule, fast = SQUARED, ALL[code]()
    updates = round_of(draws(7, 6, dimension))
    together = fast(rule, None, updates, list(updates))
    for row, member in enumerate(updates):
        for column, client in enumerate(updates):
            pair = {member: updates[member], client: updates[client]}
            alone = fast(rule, None, pair, [member])[0, sorted(pair).index(client)]
            assert alone.tobytes() == together[row, column].tobytes()


@settings(max_examples=times(15, 1_000))
@given(data=st.data())
def test_any_subset_in_any_order_and_anywhere_in_memory(data: st.DataObject) -> None:
    rule = SQUARED
    dimension = data.draw(st.sampled_from([1, 9, 300, 512, 1_300, RANGE + 700]))
    vectors = draws(dimension, 9, dimension)
    whole = fast(rule, None, round_of(vectors), [ClientId(10 * i) for i in range(9)])
    chosen = data.draw(st.lists(st.integers(0, 8), min_size=1, unique=True))
    members = data.draw(st.lists(st.sampled_from(chosen), min_size=1))
    threads = data.draw(st.integers(1, 3))
    moved = {
        ClientId(10 * place): _at_byte(vectors[place], data.draw(st.integers(0, 9)))
        for place in chosen
    }
    asked = [ClientId(10 * member) for member in members]
    found = fast_distances(threads)(rule, None, moved, asked)
    assert found.tobytes() == whole[members][:, sorted(chosen)].tobytes()


def _at_byte(vector: np.ndarray, offset: int) -> np.ndarray:
    """Return an update that begins at some byte of a file's content, aligned or not."""
    data = bytes(offset) + vector.tobytes()
    return np.frombuffer(memoryview(data)[offset:], dtype=np.float32)


@RULES
def test_matrix_rows_and_strided_arrays_are_updates_too(rule: DistanceRule) -> None:
    wide = draws(3, 6, 4_000)
    members = [ClientId(20)]
    found = fast(rule, None, round_of(wide[:, ::2]), members)
    copied = fast(rule, None, round_of([row[::2].copy() for row in wide]), members)
    assert found.tobytes() == copied.tobytes()


def test_updates_are_read_where_they_lie_and_not_copied() -> None:
    vectors = draws(0, 12, 300_000)
    updates = round_of(vectors)
    fast(SQUARED, None, updates, list(updates)[:4])
    tracemalloc.start()
    try:
        fast_distances(2)(SQUARED, None, updates, list(updates)[:4])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < vectors.nbytes / 20
