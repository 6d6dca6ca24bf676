"""What an audit says of runs that nobody has tampered with."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from clients.configuration import load
from clients.runs import manifest_of, opened
from ledger.audit.audit import audit, readable
from ledger.blobs.store import FolderBlobs
from ledger.chain.accounts import TEST_KEYS
from ledger.chain.deployment import connect
from ledger.chain.embedded import EmbeddedChain
from ledger.chain.embedded_reader import EmbeddedReader
from ledger.chain.rpc import RpcChain
from ledger.chain.rpc_server import RpcServer
from ledger.protocol.types import Beacon, Scoring, Strategy
from tests.audit.forged_chain import forged
from tests.audit.play import PARAMETERS, Game, honest_run

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.audit.report import AuditReport, Finding


def found(report: AuditReport, kind: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.kind == kind]


def test_an_honest_run_with_faults_passes_all_ten_steps(honest: Game) -> None:
    report = audit(honest.ledger, honest.blobs)
    assert [step.outcome for step in report.steps] == ["passed"] * 10, readable(report)
    assert (report.outcome, report.ok, report.rounds) == ("passed", True, 5)
    assert report.counts["rounds decided"] == 4
    assert report.counts["rounds abandoned"] == 1


def test_names_who_was_caught_at_what(honest: Game) -> None:
    report = audit(honest.ledger, honest.blobs)
    counts = report.finding_counts
    assert counts["false scores"] == counts["wrong proposal"] == counts["ban"] == 1
    assert counts["stray commitment"] == counts["abandoned round"] == 1
    [lie] = found(report, "false scores")
    assert (lie.round, lie.proven, len(lie.evidence)) == (1, True, 2)
    assert lie.sentence.startswith("false distance to client ")
    [silence] = [f for f in found(report, "silent member") if "primary" in f.sentence]
    assert (silence.round, silence.proven) == (4, False)
    reasons = {f.sentence for f in found(report, "dropout") if f.round == 1}
    assert reasons == {"payload malformed", "no commitment"}


def test_reports_its_progress_and_the_head(honest: Game) -> None:
    seen: list[tuple[int, int]] = []
    report = audit(honest.ledger, honest.blobs, lambda done, total: seen.append((done, total)))
    assert seen == [(t, 5) for t in range(1, 6)]
    assert report.deployment["head"] == f"0x{honest.ledger.state().head.hex()}"


def test_reports_its_progress_even_if_the_contract_does_not_say_where_it_stands(
    honest: Game,
) -> None:
    seen: list[tuple[int, int]] = []
    ledger = forged(honest.ledger, answer_of=lambda name, data: b"" if name == "state" else data)
    report = audit(ledger, honest.blobs, lambda done, total: seen.append((done, total)))
    assert seen == [(t, t) for t in range(1, 6)]
    assert report.steps[1].contradiction is not None


def test_a_report_is_plain_data_and_readable(honest: Game) -> None:
    report = audit(honest.ledger, honest.blobs)
    data = json.loads(json.dumps(report.as_dict()))
    assert (data["version"], data["outcome"], len(data["steps"])) == (1, "passed", 10)
    text = "\n".join(readable(report))
    assert "10 nothing missing in between" in text
    assert text.endswith("PASSED: all ten steps hold for all 5 rounds")


@pytest.mark.parametrize(
    "settings",
    [
        {"strategy": Strategy.FARTHEST, "scoring": Scoring.MEDIAN},
        {"strategy": Strategy.WITHIN_SPREAD, "scoring": Scoring.MEDIAN},
        {"strategy": Strategy.WITHIN_SPREAD, "beacon": Beacon.BLOCK, "server_rate": 0.5},
    ],
)
def test_passes_under_every_rule(tmp_path: Path, settings: dict[str, object]) -> None:
    game = Game.opened(tmp_path, replace(PARAMETERS, rounds=2, **settings))  # type: ignore[arg-type]
    with game.chain:
        game.play()
        game.play()
        report = audit(game.ledger, game.blobs)
    assert report.outcome == "passed", readable(report)


def test_a_run_that_goes_on_is_audited_up_to_its_last_ended_round(tmp_path: Path) -> None:
    game = Game.opened(tmp_path)
    with game.chain:
        report = audit(game.ledger, game.blobs)
        assert (report.outcome, report.rounds) == ("passed", 0)
        game.play()
        report = audit(game.ledger, game.blobs)
    assert (report.outcome, report.rounds) == ("passed", 1)


def test_audits_over_json_rpc(honest: Game) -> None:
    with (
        RpcServer(honest.chain) as server,
        RpcChain(server.url, TEST_KEYS[1], chain_id=honest.chain.chain_id) as node,
    ):
        report = audit(connect(node, honest.manifest), honest.blobs)
    assert report.outcome == "passed", readable(report)


def test_audits_a_closed_folder_of_a_simulated_run(tmp_path: Path) -> None:
    faults = ("malice.members.false-scores=1", "malice.trainers.wrong-length=1")
    configuration = load("smoke", settings=faults)
    blobs = FolderBlobs(tmp_path / "blobs")
    with (
        EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain,
        opened(tmp_path, "smoke", configuration, chain, blobs) as run,
    ):
        run.go_on(lambda _row: None)
    with EmbeddedReader.open(tmp_path / "chain.sqlite") as reader:
        ledger = connect(reader, manifest_of(tmp_path, "smoke"))
        report = audit(ledger, FolderBlobs(tmp_path / "blobs"))
    assert report.outcome == "passed", readable(report)
    assert report.rounds == 5


def test_equal_runs_have_equal_heads(honest: Game, tmp_path: Path) -> None:
    game = honest_run(tmp_path)
    with game.chain:
        assert game.ledger.state().head == honest.ledger.state().head
