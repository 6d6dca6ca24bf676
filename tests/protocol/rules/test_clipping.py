"""Clipped updates: exact norms, the same bits on every machine."""

from __future__ import annotations

from math import fsum, sqrt

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol.rules.clipping import clip_factors, exact_norm
from ledger.protocol.types import ClientId
from tests.protocol.support import f32

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
