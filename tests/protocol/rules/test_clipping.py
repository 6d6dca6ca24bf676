"""Clipped updates: exact norms, the same bits on every machine."""

from __future__ import annotations

from dataclasses import replace
from math import fsum, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol.errors import ParametersError
from ledger.protocol.rules.aggregation import aggregate
from ledger.protocol.rules.clipping import (
    MEDIAN,
    QUANTILE,
    exact_norm,
    median_factors,
    quantile_factors,
)
from ledger.protocol.rules.registry import CLIPS
from ledger.protocol.types import ClientId
from tests.protocol.support import PENCIL, f32

numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)


def test_norms_by_pencil() -> None:
    assert exact_norm(f32(3, -4)) == 5.0
    assert exact_norm(f32(0, 0)) == 0.0
    assert exact_norm(f32()) == 0.0
    assert exact_norm(f32(2.0**-149)) == 2.0**-149
    assert exact_norm(f32(-(2.0**127), 0)) == 2.0**127


@given(values=st.lists(numbers, max_size=30), zeros=st.sampled_from([0, 1000, 2000]))
def test_a_norm_is_the_root_of_the_exact_sum(values: list[float], zeros: int) -> None:
    # Short updates are added in another way than long ones.
    assert exact_norm(f32(*values, *[0] * zeros)) == sqrt(fsum(x * x for x in values))


@given(values=st.lists(numbers, min_size=1, max_size=30), seed=st.integers(0, 99))
def test_no_order_of_the_numbers_changes_a_norm(values: list[float], seed: int) -> None:
    shuffled = np.random.default_rng(seed).permutation(f32(*values))
    assert exact_norm(shuffled) == exact_norm(f32(*values))


def test_a_norm_of_many_numbers_is_exact() -> None:
    # A running sum loses each of the small squares beside the first, and the root of 2^60 + 2^18.
    update = np.ones((1 << 18) + 1, dtype=np.float32)
    update[0] = 2.0**30
    assert exact_norm(update) == sqrt(2.0**60 + 2.0**18)
    assert exact_norm(update[::-1]) == exact_norm(update)


def test_longer_updates_are_shortened_to_the_median() -> None:
    updates = {ClientId(i): f32(length) for i, length in enumerate((1.0, 2.0, -8.0))}
    assert median_factors(updates, updates) == {0: 1.0, 1: 1.0, 2: 0.25}
    # Of an even number it is the middle of two: 3 of 2 and 4.
    updates[ClientId(3)] = f32(4.0)
    assert median_factors(updates, updates) == {0: 1.0, 1: 1.0, 2: 0.375, 3: 0.75}


def test_updates_clipped_to_zero_leave_the_model() -> None:
    updates = {ClientId(i): f32(length) for i, length in enumerate((0.0, 0.0, 5.0))}
    assert median_factors(updates, updates) == {0: 1.0, 1: 1.0, 2: 0.0}


def test_a_clipped_update_enters_with_its_share_of_samples() -> None:
    updates = {ClientId(1): f32(2.0), ClientId(2): f32(-8.0), ClientId(3): f32(1.0)}
    samples = {ClientId(1): 1, ClientId(2): 2, ClientId(3): 1}
    factors = median_factors(updates, updates)
    # Its length 8 becomes 2, and its share is a half: a quarter less than the others add.
    assert aggregate(f32(0.0), updates, samples, 1.0, factors).tolist() == [0.25]
    assert aggregate(f32(0.0), updates, samples, 1.0).tolist() == [3.25]


@given(rows=st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=6))
def test_no_clipped_update_is_longer_than_the_median(rows: list[list[float]]) -> None:
    updates = {ClientId(i): f32(*row) for i, row in enumerate(rows)}
    norms = sorted(exact_norm(update) for update in updates.values())
    middle = (norms[(len(norms) - 1) // 2] + norms[len(norms) // 2]) / 2
    for client, factor in median_factors(updates, updates).items():
        assert 0 <= factor <= 1
        assert factor * exact_norm(updates[client]) <= middle * (1 + 1e-15)


def test_accepted_updates_are_shortened_to_two_fifths_of_all() -> None:
    # Of 2, 3, 4, 5, 6, 8 it is the third: floor(2 * 5 / 5) = 2, counted from 0.
    lengths = (6.0, 3.0, 8.0, 2.0, 4.0, 5.0)
    updates = {ClientId(i): f32(-length) for i, length in enumerate(lengths)}
    accepted = {client: updates[client] for client in map(ClientId, (1, 2, 5))}
    assert quantile_factors(accepted, updates) == {1: 1.0, 2: 0.5, 5: 0.8}
    assert quantile_factors({ClientId(0): updates[ClientId(0)]}, updates) == {0: 4 / 6}


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
    assert quantile_factors(accepted, updates) == expected


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
    for client, factor in quantile_factors(accepted, updates).items():
        entering = factor * exact_norm(updates[client])
        assert entering <= max(honest) * (1 + 1e-15)
        if theirs <= 2 * (len(updates) - 1) // 5:
            assert entering >= min(length, *honest) * (1 - 1e-15)
    if theirs and length > max(honest):
        assert set(median_factors(accepted, updates).values()) == {1.0}


def test_only_listed_clip_rules_are_accepted() -> None:
    assert list(CLIPS) == ["none", "median", "quantile"]
    assert replace(PENCIL, clip="median").clip == MEDIAN.name
    assert [name for name, rule in CLIPS.items() if rule.needs_all] == [QUANTILE.name]
    with pytest.raises(ParametersError, match="clip = mean is none of none, median, quantile"):
        replace(PENCIL, clip="mean")
