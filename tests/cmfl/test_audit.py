"""`cmfl.audit`: of a run, of a home, of a node with blobs, and beside a service."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import cmfl
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.rpc.server import RpcServer
from tests.cmfl.conftest import FACE

if TYPE_CHECKING:
    import httpx

pytestmark = FACE


@pytest.fixture(scope="module")
def home(run: cmfl.Run) -> Path:
    assert run.home is not None
    return run.home


@pytest.fixture(scope="module")
def node(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    copy = tmp_path_factory.mktemp("node") / "chain.sqlite"
    shutil.copy(home / "chain.sqlite", copy)
    with EmbeddedChain.open(copy) as chain, RpcServer(chain) as server:
        yield server.url


@pytest.fixture(scope="module")
def service(home: Path) -> Iterator[httpx.Client]:
    from api.settings import Settings
    from tests.api.conftest import serving

    with serving(Settings(home=home)) as http:
        yield http


def test_a_run_passes_its_audit(run: cmfl.Run, tmp_path: Path) -> None:
    audit = cmfl.audit(run)
    assert (audit.passed, audit.outcome, len(audit.steps)) == (True, "passed", 10)
    assert audit.verdict == "PASSED: all ten steps hold for all 3 rounds"
    assert audit.verdict in repr(audit)
    assert audit.verdict in audit._repr_html_()
    report = audit.save(tmp_path / "report.json")
    assert audit.head_to_keep == run.head
    later = cmfl.audit(run.home, since=report, head=audit.head_to_keep, strict=True)
    assert (later.passed, later.as_dict()["built_on"]["rounds"]) == (True, 3)


def test_an_audit_needs_neither_run_nor_home(run: cmfl.Run, home: Path, node: str) -> None:
    audit = cmfl.audit(rpc_url=node, address=run.address, blobs=home / "blobs")
    assert audit.passed
    opened = cmfl.open(rpc_url=node, address=run.address, blobs=home / "blobs")
    assert (opened.head, opened.home, opened.accuracy) == (run.head, None, None)
    assert opened.rounds[2].explain() == run.rounds[2].explain()
    with pytest.raises(cmfl.CmflError, match="expected 5"):
        cmfl.audit(rpc_url=node, address=run.address, blobs=home / "blobs", chain_id=5)


def test_a_service_gives_the_run_and_blobs_but_no_chain(
    run: cmfl.Run, node: str, service: httpx.Client
) -> None:
    remote = cmfl.connect(str(service.base_url))
    assert (remote.name, remote.head, remote.address) == (run.name, run.head, run.address)
    assert [each.accuracy for each in remote.rounds] == [each.accuracy for each in run.rounds]
    assert remote.rounds[2].explain() == run.rounds[2].explain()
    with pytest.raises(cmfl.ConfigurationError, match="serves blobs, not a chain"):
        cmfl.audit(remote)
    assert cmfl.audit(remote, rpc_url=node, address=run.address).passed


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [({}, "name what to audit"), ({"run": "nowhere"}, "there is no run in nowhere")],
)
def test_what_is_not_clear_is_refused(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(cmfl.ConfigurationError, match=sentence):
        cmfl.audit(**arguments)


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
    with pytest.raises(cmfl.ConfigurationError, match="client -1: must"):
        run.rounds[2].prove(-1)
    with pytest.raises(cmfl.ConfigurationError, match="give exactly one of"):
        cmfl.verify(proof, head=run.head, run=run)
    with pytest.raises(cmfl.ConfigurationError, match="rpc_url= needs address="):
        cmfl.verify(proof, rpc_url="http://127.0.0.1:1")
    with pytest.raises(cmfl.ConfigurationError, match=r"none\.json: No such file"):
        cmfl.verify(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{}", encoding="utf-8")
    with pytest.raises(cmfl.CmflError):
        cmfl.verify(tmp_path / "bad.json", head=run.head)
