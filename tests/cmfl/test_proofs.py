"""Proofs of a client's part, made by one and checked by another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import cmfl
from tests.cmfl.conftest import FACE

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = FACE


@pytest.fixture(scope="module")
def proof(run: cmfl.Run) -> cmfl.Proof:
    best = next(row["client"] for row in run.rounds[2].updates if row["rank"] == 0)
    return run.rounds[2].prove(best)


def test_a_proof_is_checked_from_a_kept_head_alone(
    run: cmfl.Run, proof: cmfl.Proof, tmp_path: Path
) -> None:
    sent = proof.save(tmp_path / "proof.json")
    verification = cmfl.verify(sent, round=2, client=proof.client, head=run.head)
    assert (verification.passed, verification.outcome) == (True, "passed")
    start = f"PROVEN: in round 2 the update of client {proof.client} was used"
    assert verification.sentence.startswith(start)
    assert all(row["ok"] for row in verification.steps)
    assert verification.sentence in repr(verification)
    assert "not checked" in repr(proof)


def test_a_proof_is_checked_against_the_own_chain(run: cmfl.Run, proof: cmfl.Proof) -> None:
    assert cmfl.verify(proof, run=run).passed
    assert cmfl.verify(proof, run=run.home).passed
    assert cmfl.verify(proof).outcome == "incomplete"  # nothing is trusted


def test_a_proof_of_something_else_is_contradicted(run: cmfl.Run, proof: cmfl.Proof) -> None:
    assert cmfl.verify(proof, round=3, head=run.head).outcome == "failed"
    assert not cmfl.verify(proof, head="0x" + "1" * 64).passed


def test_what_cannot_be_proven_or_checked_is_refused(
    run: cmfl.Run, proof: cmfl.Proof, tmp_path: Path
) -> None:
    with pytest.raises(cmfl.CmflError, match="99"):
        run.rounds[2].prove(99)
    with pytest.raises(cmfl.ConfigurationError, match="counted from 0"):
        run.rounds[2].prove(-1)
    with pytest.raises(cmfl.ConfigurationError, match="trust one of"):
        cmfl.verify(proof, head=run.head, run=run)
    with pytest.raises(cmfl.ConfigurationError, match="go together"):
        cmfl.verify(proof, rpc_url="http://127.0.0.1:1")
    with pytest.raises(cmfl.ConfigurationError, match=r"none\.json: No such file"):
        cmfl.verify(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{}", encoding="utf-8")
    with pytest.raises(cmfl.CmflError):
        cmfl.verify(tmp_path / "bad.json", head=run.head)
