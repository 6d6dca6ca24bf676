"""Faults of a test network's worker are asked for by name, and never by a slip."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clients.adversaries.faults import TrainerFault
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.payloads import PAYLOAD_FORMS, Payload
from tests.federation.worker_faults import (
    NO_FAULTS,
    WorkerFaults,
    faults_from_file,
    faults_named,
    faults_of,
)
from tests.protocol.support import PENCIL


def test_an_unknown_fault_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"CMFL_WORKER_FAULT = 'lazy': known are"):
        faults_named("lazy")


def test_a_members_false_reference_is_a_hundred_times_too_large() -> None:
    faults = faults_named("false-reference")
    for name, form in PAYLOAD_FORMS.items():
        parameters = replace(PENCIL, dimension=2, payload=name)
        update = form.payload(np.array([1, -2], dtype="<f4"))
        assert faults.sent(update, parameters, is_member=False) is update
        sent = faults.sent(update, parameters, is_member=True)
        assert form.decode(sent.data, 2).tolist() == [100, -200]
        assert NO_FAULTS.sent(update, parameters, is_member=True) is update
        malformed = Payload.of(b"malformed")
        assert faults.sent(malformed, parameters, is_member=True) is malformed


def test_faults_that_are_told_are_those_of_their_round_alone(tmp_path: Path) -> None:
    path = tmp_path / "fault"
    told = faults_of(faults_from_file(path))
    assert told.in_round(12) == NO_FAULTS, "nothing has been told yet"
    path.write_text("12 copied\n")
    assert told.in_round(12) == WorkerFaults(of_trainers=TrainerFault.COPIED)
    assert told.in_round(11) == told.in_round(13) == NO_FAULTS
    path.unlink()
    assert told.in_round(12) == NO_FAULTS


def test_a_file_that_tells_no_fault_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fault"
    path.write_text("copied")
    with pytest.raises(ConfigurationError, match="'copied' is no round's number"):
        faults_of(faults_from_file(path)).in_round(12)
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        faults_of(faults_from_file(path)).in_round(12)
