"""Faults of a worker are asked for by name, and never by a slip."""

from __future__ import annotations

import numpy as np
import pytest

from clients.adversaries.faults import MemberFault, TrainerFault
from clients.worker.faults import HONEST, Faults, faults_named
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.payload import Payload


def test_nothing_asked_for_is_honest() -> None:
    assert faults_named("") == faults_named(" , ") == HONEST
    assert not HONEST.are_any


def test_faults_are_those_of_members_and_of_trainers() -> None:
    assert faults_named("equivocating") == Faults(member=MemberFault.EQUIVOCATING)
    assert faults_named("late, wrong-proposal") == Faults(
        MemberFault.WRONG_PROPOSAL, TrainerFault.LATE
    )
    assert faults_named("silent") == Faults(MemberFault.SILENT, TrainerFault.SILENT)


def test_an_unknown_fault_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"CMFL_WORKER_FAULT = 'lazy': known are"):
        faults_named("lazy")


def test_a_false_reference_is_a_hundred_times_too_large_and_only_a_member_s() -> None:
    update = Payload.of(np.array([1, -2], dtype="<f4").tobytes())
    faults = faults_named("false-reference")
    assert faults.sent(update, is_member=False) is update
    sent = faults.sent(update, is_member=True)
    assert np.frombuffer(sent.data, dtype="<f4").tolist() == [100, -200]
    assert HONEST.sent(update, is_member=True) is update
