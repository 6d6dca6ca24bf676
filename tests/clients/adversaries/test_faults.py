"""Faults of members and trainers: who has them, and what some of them send."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.adversaries.faults import (
    MemberFault,
    TrainerFault,
    assign_faults,
    false_scores,
    faulty_payload,
)
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.payload import Payload

UPDATE = Payload.of(np.array([1.0, -2.0, 0.0, 4.0], dtype="<f4").tobytes())


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


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


def test_false_scores_swap_nearest_and_farthest_and_move_a_mean() -> None:
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


def test_a_faulty_trainer_sends_nan_wrong_length_or_nothing() -> None:
    not_finite = faulty_payload(UPDATE, TrainerFault.NOT_FINITE)
    assert not_finite is not None
    assert np.isnan(np.frombuffer(not_finite.data, dtype="<f4")).all()
    assert not_finite.size == 16
    wrong_length = faulty_payload(UPDATE, TrainerFault.WRONG_LENGTH)
    assert wrong_length is not None
    assert wrong_length.data == UPDATE.data[:15]
    assert wrong_length.digest == sha256(UPDATE.data[:15])
    assert faulty_payload(UPDATE, TrainerFault.SILENT) is None


@pytest.mark.parametrize(
    "fault", [TrainerFault.LATE, TrainerFault.STRAY, TrainerFault.COPIED, TrainerFault.SELF_BAN]
)
def test_a_fault_outside_the_payload_leaves_it_unchanged(fault: TrainerFault) -> None:
    assert faulty_payload(UPDATE, fault) is UPDATE
