"""Faults of a test network's worker are asked for by name, and never by a slip."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from clients.adversaries.faults import MemberFault, TrainerFault
from cmfl.commands.exit_codes import WRONG
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.payload import Payload
from ledger.protocol.payload_forms import PAYLOAD_FORMS
from tests.federation import faulty_process
from tests.federation.worker_faults import (
    FAULT_VARIABLE,
    NO_FAULTS,
    WorkerFaults,
    faults_from_file,
    faults_named,
    faults_of,
)
from tests.protocol.support import PENCIL

if TYPE_CHECKING:
    from pathlib import Path


def test_nothing_asked_for_is_honest() -> None:
    assert faults_named("") == faults_named(" , ") == NO_FAULTS


def test_faults_are_those_of_members_and_of_trainers() -> None:
    assert faults_named("equivocating") == WorkerFaults(of_members=MemberFault.EQUIVOCATING)
    assert faults_named("late, wrong-proposal") == WorkerFaults(
        MemberFault.WRONG_PROPOSAL, TrainerFault.LATE
    )
    assert faults_named("silent") == WorkerFaults(MemberFault.SILENT, TrainerFault.SILENT)


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


def test_only_who_is_begun_for_it_heeds_the_file(tmp_path: Path) -> None:
    path = tmp_path / "fault"
    path.write_text("12 copied\n")
    assert faults_of("").in_round(12) == NO_FAULTS
    assert faults_of("late").in_round(12) == WorkerFaults(of_trainers=TrainerFault.LATE)


@pytest.mark.parametrize(
    ("told", "said"),
    [("copied", "'copied' is no round's number"), ("12 lazy", "known are"), ("", "'' is no round")],
)
def test_a_file_that_tells_no_fault_is_refused(tmp_path: Path, told: str, said: str) -> None:
    path = tmp_path / "fault"
    path.write_text(told)
    with pytest.raises(ConfigurationError, match=said):
        faults_of(faults_from_file(path)).in_round(12)
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        faults_of(faults_from_file(path)).in_round(12)


def test_a_network_process_refuses_an_unknown_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(FAULT_VARIABLE, "lazy")
    with pytest.raises(SystemExit) as ended:
        faulty_process.run()
    assert ended.value.code == WRONG
    assert capsys.readouterr().err.startswith("cmfl: CMFL_WORKER_FAULT = 'lazy': known are ")
