"""Sums over updates, bit for bit: the aggregate, clipped updates and their exact norms."""

from __future__ import annotations

import struct
from fractions import Fraction
from math import fsum, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ledger.protocol.rules import direction
from ledger.protocol.rules.direction import _sums_of_squares, clip_factors, exact_norm
from ledger.protocol.rules.selection import aggregate
from ledger.protocol.types import ClientId
from tests.protocol.support import f32

Rows = dict[ClientId, tuple[list[float], int]]  # update and samples of each client
rates = st.floats(1e-6, 1e3)


@st.composite
def rounds(draw: st.DrawFn) -> tuple[list[float], Rows]:
    """Return a model and updates of equal dimension."""
    dimension = draw(st.integers(1, 5))
    vector = st.lists(st.floats(-1e6, 1e6, width=32), min_size=dimension, max_size=dimension)
    rows = st.tuples(vector, st.integers(1, 9) | st.integers(1, 2**64 - 1))
    clients = st.integers(0, 300).map(ClientId)
    return draw(vector), draw(st.dictionaries(clients, rows, min_size=1, max_size=6))


def aggregated(model: list[float], rows: Rows, rate: float) -> NDArray[np.float32]:
    return aggregate(
        f32(*model),
        {client: f32(*update) for client, (update, _) in rows.items()},
        {client: samples for client, (_, samples) in rows.items()},
        rate,
    )


def plainly_aggregated(model: list[float], rows: Rows, rate: float) -> bytes:
    """Return the aggregate by the definition, number by number."""
    total = sum(samples for _, samples in rows.values())
    result = b""
    for place, weight in enumerate(model):
        sum_of_products = 0.0
        for client in sorted(rows):
            update, samples = rows[client]
            share = float(Fraction(samples, total))
            product = share * update[place]
            sum_of_products = sum_of_products + product
        step = rate * sum_of_products
        result += struct.pack("<f", weight - step)
    return result


def test_the_sum_is_taken_in_float64_in_ascending_order() -> None:
    # (2^60 + 1) - 2^60 is 0 in float64, and (2^60 - 2^60) + 1 is 1: only the order tells.
    big = 2.0**60
    near = {ClientId(0): ([big], 1), ClientId(1): ([3.0], 1), ClientId(2): ([-big], 1)}
    late = {ClientId(0): ([big], 1), ClientId(1): ([-big], 1), ClientId(2): ([3.0], 1)}
    for arrived in (list, reversed):
        assert aggregated([0.0], dict(arrived(near.items())), 1.0).tolist() == [0.0]
        assert aggregated([0.0], dict(arrived(late.items())), 1.0).tolist() == [-1.0]


def test_there_is_one_rounding_to_float32_at_the_end() -> None:
    # 1 - 2^-25 - 2^-25 is 1 - 2^-24, a float32; rounded after each step it would stay 1.
    tiny = 2.0**-25
    rows = {ClientId(0): ([2 * tiny], 1), ClientId(1): ([2 * tiny], 1)}
    assert aggregated([1.0], rows, 1.0).tolist() == [1.0 - 2 * tiny]


def test_an_aggregate_over_float32_becomes_infinite_without_a_warning() -> None:
    assert aggregated([0.0], {ClientId(0): ([3e38], 1)}, 10.0).tolist() == [float("-inf")]


def test_without_an_update_there_is_no_aggregate() -> None:
    with pytest.raises(ValueError, match="no update"):
        aggregate(f32(1.0), {}, {}, 1.0)


def test_an_update_of_another_shape_is_refused() -> None:
    # Length 1 would otherwise be broadcast to every parameter.
    for update in (f32(1.0), f32(1.0, 2.0, 3.0)):
        with pytest.raises(ValueError, match="the update of client 4 has shape"):
            aggregate(f32(1.0, 2.0), {ClientId(4): update}, {ClientId(4): 1}, 1.0)


@given(drawn=rounds(), rate=rates)
def test_the_bytes_are_those_of_a_plain_loop(drawn: tuple[list[float], Rows], rate: float) -> None:
    model, rows = drawn
    assert aggregated(model, rows, rate).tobytes() == plainly_aggregated(model, rows, rate)


@given(drawn=rounds())
def test_the_inputs_are_left_as_they_were(drawn: tuple[list[float], Rows]) -> None:
    model, rows = drawn
    start = f32(*model)
    updates = {client: f32(*update) for client, (update, _) in rows.items()}
    before = [start.tobytes(), *(update.tobytes() for update in updates.values())]
    aggregate(start, updates, {client: samples for client, (_, samples) in rows.items()}, 1.0)
    assert before == [start.tobytes(), *(update.tobytes() for update in updates.values())]


numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(values=st.lists(numbers, max_size=30), zeros=st.sampled_from([0, 1000, 2000]))
def test_a_norm_is_the_root_of_the_exact_sum(values: list[float], zeros: int) -> None:
    # Short updates are added in another way than long ones.
    assert exact_norm(f32(*values, *[0] * zeros)) == sqrt(fsum(x * x for x in values))


def test_a_norm_of_many_numbers_is_exact() -> None:
    # A running sum loses each of the small squares beside the first, and the root of 2^60 + 2^18.
    update = np.ones((1 << 18) + 1, dtype=np.float32)
    update[0] = 2.0**30
    assert exact_norm(update) == sqrt(2.0**60 + 2.0**18)
    assert exact_norm(update[::-1]) == exact_norm(update)


@pytest.mark.parametrize("least", [-126, -80, -40, -12])
@pytest.mark.parametrize("sign", [-1, 0, 1])
def test_a_norm_near_a_rounding_boundary_is_exact(
    least: int, sign: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 2^54 + 2 is halfway between two numbers of float64, and the least square decides.
    update = np.zeros(40_000, dtype=np.float32)
    update[[0, 7, 39_998]] = 2.0**27, 1.0, 1.0
    if sign > 0:
        update[-1] = 2.0**least
    elif sign < 0:
        update[7] = np.nextafter(np.float32(1), np.float32(0))
    exact = sum(Fraction(float(x)) ** 2 for x in update[update != 0])
    assert exact_norm(update) == sqrt(exact.numerator / exact.denominator)
    assert exact_norm(update[::-1].copy()) == exact_norm(update)

    levels: list[int | None] = []

    def sums_of_squares(row: NDArray[np.float32], limit: int | None = None) -> Any:
        levels.append(limit)
        return _sums_of_squares(row, limit)

    monkeypatch.setattr(direction, "_sums_of_squares", sums_of_squares)
    exact_norm(update)
    assert levels == [1, None]
    exact_norm(np.ones(500, np.float32))  # far from a boundary, and so rounded at once
    assert levels == [1, None, 1]


@pytest.mark.parametrize("zeros", [0, 1000])
def test_what_is_not_finite_has_no_norm(zeros: int) -> None:
    with pytest.raises(ValueError, match="finite"):
        exact_norm(f32(1, float("inf"), *[0] * zeros))


def test_accepted_updates_are_shortened_to_two_fifths_of_all() -> None:
    # Of 2, 3, 4, 5, 6, 8 it is the third: floor(2 * 5 / 5) = 2, counted from 0.
    lengths = (6.0, 3.0, 8.0, 2.0, 4.0, 5.0)
    updates = {ClientId(i): f32(-length) for i, length in enumerate(lengths)}
    accepted = {client: updates[client] for client in map(ClientId, (1, 2, 5))}
    assert clip_factors(accepted, updates) == {1: 1.0, 2: 0.5, 5: 0.8}
    assert clip_factors({ClientId(0): updates[ClientId(0)]}, updates) == {0: 4 / 6}


@given(
    rows=st.lists(st.lists(numbers, min_size=2, max_size=2), min_size=1, max_size=12),
    again=st.integers(0, 4),
    seed=st.integers(0, 99),
)
def test_the_quantile_is_of_exact_norms_whatever_lies_near_it(
    rows: list[list[float]], again: int, seed: int
) -> None:
    # The same numbers in another order, and one unit in the last place away: ties and near ties.
    twins = [row[::-1] for row in rows[:again]]
    nearly = [[float(np.nextafter(np.float32(row[0]), 0)), row[1]] for row in rows[:again]]
    updates = {ClientId(i): f32(*row) for i, row in enumerate([*rows, *twins, *nearly])}
    norms = {client: exact_norm(update) for client, update in updates.items()}
    t = sorted(norms.values())[2 * (len(norms) - 1) // 5]
    chosen = np.random.default_rng(seed).permutation(len(updates))[: 1 + len(updates) // 2]
    accepted = {ClientId(int(i)): updates[ClientId(int(i))] for i in sorted(chosen)}
    expected = {c: 1.0 if norms[c] <= t else t / norms[c] for c in accepted}
    assert clip_factors(accepted, updates) == expected


@given(
    honest=st.lists(st.floats(0.5, 2, width=32), min_size=2, max_size=30),
    longer=st.integers(0, 45),
    length=st.floats(2.0**-30, 2.0**60, width=32),
)
def test_whoever_sends_half_of_a_round_does_not_set_how_far_it_goes(
    honest: list[float], longer: int, length: float
) -> None:
    # Three fifths may be too long: captured rounds accept attackers alone, whose median is theirs.
    theirs = min(longer, 3 * len(honest) // 2)
    updates = {ClientId(i): f32(norm) for i, norm in enumerate([*honest, *[length] * theirs])}
    accepted = {c: updates[c] for c in updates if c >= len(honest)}
    for client, factor in clip_factors(accepted, updates).items():
        entering = factor * exact_norm(updates[client])
        assert entering <= max(honest) * (1 + 1e-15)
        if theirs <= 2 * (len(updates) - 1) // 5:
            assert entering >= min(length, *honest) * (1 - 1e-15)
