"""Attacks on updates, and faults of members and trainers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.attacks import (
    ATTACKS,
    AttackParameters,
    MemberFault,
    TrainerFault,
    assign_faults,
    attack_named,
    false_scores,
    faulty_payload,
    malicious_clients,
)
from ledger.protocol.errors import ConfigurationError

UPDATE = np.array([1.0, -2.0, 0.0, 4.0], dtype=np.float32)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_sends_another_vector_of_the_same_kind_and_spares_the_original(
    name: str,
) -> None:
    kept = UPDATE.copy()
    sent = attack_named(name)(UPDATE, rng(), AttackParameters())
    assert sent.dtype == np.float32
    assert sent.shape == UPDATE.shape
    assert not np.array_equal(sent, UPDATE)
    assert np.array_equal(UPDATE, kept)
    assert np.array_equal(sent, attack_named(name)(UPDATE, rng(), AttackParameters()))


def test_same_value_sends_zeros_and_back_gradient_the_opposite() -> None:
    parameters = AttackParameters()
    assert ATTACKS["same-value"](UPDATE, rng(), parameters).tolist() == [0, 0, 0, 0]
    assert ATTACKS["back-gradient"](UPDATE, rng(), parameters).tolist() == [-1, 2, 0, -4]


@given(floor=st.floats(0, 1), seed=st.integers(0, 2**32 - 1))
def test_gradient_scaling_multiplies_each_element_by_a_draw_of_its_own(
    floor: float, seed: int
) -> None:
    ones = np.ones(200, dtype=np.float32)
    sent = ATTACKS["gradient-scaling"](ones, rng(seed), AttackParameters(floor))
    assert sent.min() >= np.float32(floor)
    assert sent.max() <= 1
    if floor < 0.9:
        assert len(np.unique(sent)) > 150


def test_an_unknown_attack_and_a_floor_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="'noise'; known are gradient-scaling, same"):
        attack_named("noise")
    for floor in (-0.1, 1.1, float("nan")):
        with pytest.raises(ConfigurationError, match="scaling_floor"):
            AttackParameters(floor)


@pytest.mark.parametrize(
    ("clients", "rate", "count"),
    [(60, 0.3, 18), (10, 0.25, 3), (10, 0.24, 2), (5, 0.0, 0), (5, 1.0, 5), (1, 0.5, 1)],
)
def test_the_malicious_are_as_many_as_the_rate_says_rounded_to_the_nearest(
    clients: int, rate: float, count: int
) -> None:
    chosen = malicious_clients(clients, rate, rng())
    assert len(chosen) == count
    assert list(chosen) == sorted(set(chosen))
    assert all(type(client) is int and 0 <= client < clients for client in chosen)
    assert chosen == malicious_clients(clients, rate, rng())


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_a_rate_outside_zero_to_one_is_refused(rate: float) -> None:
    with pytest.raises(ConfigurationError, match="malicious_rate"):
        malicious_clients(10, rate, rng())


def test_faults_are_assigned_to_distinct_candidates() -> None:
    wanted = {MemberFault.SILENT: 2, MemberFault.FALSE_SCORES: 1}
    faults = assign_faults([4, 9, 6, 1], wanted, rng())
    assert list(faults) == sorted(faults)
    assert set(faults) <= {1, 4, 6, 9}
    assert sorted(faults.values()) == ["false-scores", "silent", "silent"]
    assert assign_faults([], {TrainerFault.SILENT: 0}, rng()) == {}


def test_more_faults_than_candidates_or_a_negative_number_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="3 faulty clients wanted, but only 2"):
        assign_faults([0, 1], {MemberFault.EQUIVOCATING: 3}, rng())
    with pytest.raises(ConfigurationError, match="negative"):
        assign_faults([0, 1], {MemberFault.EQUIVOCATING: -1}, rng())


def test_false_scores_make_the_nearest_the_farthest_and_move_a_mean() -> None:
    true = np.array([1.0, 4.0, 2.0, 3.0])
    lies = false_scores(true, rng())
    assert np.argsort(lies).tolist() == np.argsort(true)[::-1].tolist()
    assert 4 <= lies[0] <= 40
    members = np.stack([true, true, lies])
    assert np.argsort(members.mean(axis=0))[0] != 0
    assert np.argsort(np.median(members, axis=0)).tolist() == [0, 2, 3, 1]


@given(st.lists(st.floats(0, 1e30), max_size=20), st.integers(0, 2**32 - 1))
def test_false_scores_still_look_like_distances(true: list[float], seed: int) -> None:
    lies = false_scores(np.array(true), rng(seed))
    assert lies.shape == (len(true),)
    assert np.isfinite(lies).all()
    assert (lies >= 0).all()


def test_a_faulty_trainer_sends_nan_or_a_wrong_length_or_nothing() -> None:
    not_finite = faulty_payload(UPDATE, TrainerFault.NOT_FINITE)
    assert not_finite is not None
    assert np.isnan(np.frombuffer(not_finite, dtype="<f4")).all()
    assert len(not_finite) == 16
    wrong_length = faulty_payload(UPDATE, TrainerFault.WRONG_LENGTH)
    assert wrong_length is not None
    assert len(wrong_length) == 15
    assert faulty_payload(UPDATE, TrainerFault.SILENT) is None
