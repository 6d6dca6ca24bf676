"""What an audit says of runs that nobody has tampered with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ledger.audit.checks.rounds import (
    ABANDONED_ROUND,
    BAN,
    DROPOUT,
    EMPTY_SEAT,
    FALSE_SCORES,
    LATE_COMMITMENT,
    ROUNDS_ABANDONED,
    ROUNDS_DECIDED,
    SILENT_PRIMARY,
    STRAY_COMMITMENT,
    TWO_VECTORS,
    WRONG_PROPOSAL,
)
from ledger.audit.engine import AuditOptions, audit
from ledger.audit.report import (
    AuditOutcome,
    AuditReport,
    AuditStep,
    Finding,
    FindingKind,
    StepOutcome,
)
from ledger.audit.report_text import readable
from ledger.protocol.documents.record import decode_record
from ledger.protocol.encoding import word_client
from ledger.protocol.errors import RefusalCode
from ledger.protocol.ledger_state import RoundDecided, StatementKind
from ledger.protocol.types import Beacon, DropoutReason, Quorum, RefusalReason
from tests.audit import deviations as dev
from tests.audit.blobs import ChangedBlobs
from tests.audit.honest import honest_run
from tests.audit.runs import PARAMETERS, Deviation, Run
from tests.contracts.relay import RelayedLedger
from tests.support.refusals import refused


def found(report: AuditReport, kind: FindingKind) -> list[Finding]:
    return [finding for finding in report.findings if finding.kind is kind]


def test_an_honest_run_with_faults_passes_all_ten_steps(honest: Run) -> None:
    report = audit(honest.ledger, honest.blobs)
    assert [step.outcome for step in report.steps] == [StepOutcome.PASSED] * 10, readable(report)
    assert (report.outcome, report.rounds) == (AuditOutcome.PASSED, 5)
    assert report.counts[ROUNDS_DECIDED] == 4
    assert report.counts[ROUNDS_ABANDONED] == 1


def test_names_who_was_caught_at_what(honest: Run) -> None:
    report = audit(honest.ledger, honest.blobs)
    expected = {
        ABANDONED_ROUND: 1,
        BAN: 2,
        DROPOUT: 3,
        EMPTY_SEAT: 1,
        FALSE_SCORES: 1,
        LATE_COMMITMENT: 1,
        SILENT_PRIMARY: 1,
        STRAY_COMMITMENT: 1,
        TWO_VECTORS: 1,
        WRONG_PROPOSAL: 1,
    }
    assert report.finding_counts == {str(kind): count for kind, count in expected.items()}
    [lie] = found(report, FALSE_SCORES)
    assert (lie.round, lie.proven, len(lie.evidence)) == (1, True, 2)
    decided = honest.ledger.outcomes(1, descending=False)[0].event
    assert isinstance(decided, RoundDecided)
    named = min(map(word_client, decided.ranking))
    assert (lie.reason, lie.named) == (RefusalReason.FALSE_DISTANCE, named)
    [pair] = found(report, TWO_VECTORS)
    assert (pair.round, pair.proven, len(pair.evidence)) == (4, True, 4)
    [silence] = found(report, SILENT_PRIMARY)
    assert (silence.round, silence.proven) == (4, False)
    reasons = [(f.round, f.reason, f.proven) for f in found(report, DROPOUT)]
    assert reasons == [
        (1, DropoutReason.PAYLOAD_MALFORMED, True),
        (1, DropoutReason.NO_COMMITMENT, True),
        (4, DropoutReason.PAYLOAD_MISSING, False),
    ]
    bans = found(report, BAN)
    assert [(ban.round, ban.reason, ban.proven) for ban in bans] == [
        (3, StatementKind.REPLY, True),
        (4, StatementKind.REPLY, True),
    ]


def test_reports_its_progress_and_the_head(honest: Run) -> None:
    seen: list[tuple[int, int]] = []
    report = audit(
        honest.ledger, honest.blobs, AuditOptions(progress=lambda *now: seen.append(now))
    )
    assert seen == [(t, 5) for t in range(1, 6)]
    assert report.deployment["head"] == f"0x{honest.ledger.state().head.hex()}"


def test_what_fails_and_what_is_missing_is_plain_data_too(tmp_path: Path) -> None:
    run = Run.on_revm(tmp_path).play(Deviation(judgement=dev.wrong_model))
    record = decode_record(run.blobs.get(run.outcome().record))
    lost = ChangedBlobs(run.blobs, {record.scores[0].scores.digest: None})
    data = json.loads(json.dumps(audit(run.ledger, lost).as_dict()))
    failed, open_step = data["steps"][AuditStep.MODEL - 1], data["steps"][AuditStep.BLOBS - 1]
    assert failed["contradiction"]["fact"] == "model"
    assert failed["contradiction"]["recorded"].startswith("0x")
    [missing] = open_step["missing"]
    assert (missing["need"], missing["subject"]) == ("blob", "score vector")
    assert missing["sentence"].startswith(f"round 1, client {missing['clients'][0]}: the score")


@pytest.mark.parametrize(
    "settings",
    [
        {"strategy": 2},
        {"strategy": 3},
        {"strategy": 3, "beacon": Beacon.BLOCK, "server_rate": 0.5},
        {"quorum": Quorum.BFT},
    ],
)
def test_an_honest_run_passes_under_every_rule(tmp_path: Path, settings: dict[str, object]) -> None:
    run = honest_run(tmp_path, Run.on_revm, **settings)
    report = run.passed()
    assert report.counts[ROUNDS_DECIDED] == 4


def test_running_run_is_audited_up_to_its_last_ended_round(tmp_path: Path) -> None:
    run = Run.on_revm(tmp_path)
    report = audit(run.ledger, run.blobs)
    assert (report.outcome, report.rounds) == (AuditOutcome.PASSED, 0)
    run.play()
    run.commit({client: run.word(client) for client in run.trainers[:3]})
    run.ban(run.committee[0])
    report = audit(run.ledger, run.blobs)
    assert (report.outcome, report.rounds) == (AuditOutcome.PASSED, 1)
    assert report.counts["open commitments"] == 3
    assert len(found(report, BAN)) == 1, "of the open round"


def test_equal_runs_have_equal_heads(honest: Run, tmp_path: Path) -> None:
    run = honest_run(tmp_path)
    with run.chain:
        assert run.ledger.state().head == honest.ledger.state().head


def test_a_self_ban_in_the_round_changes_nothing_in_it(tmp_path: Path) -> None:
    """Nobody voids what is certified: it is ranked, accepted and elected all the same."""
    run = Run.on_revm(tmp_path)
    record = run.prepare()
    accepted, voter = run.judge(record).ranking.accepted[0], run.committee[1]
    run.ban(accepted)
    run.ban(voter)
    run.conclude(record)
    assert accepted in run.outcome(1).accepted
    run.play()
    run.passed()
    assert not {accepted, voter}.intersection(run.trainers), "banned from the next round on"


def test_a_ban_after_the_last_round_is_still_a_finding(tmp_path: Path) -> None:
    run = Run.on_revm(tmp_path, replace(PARAMETERS, rounds=1)).play()
    run.ban(run.committee[0])
    report = run.passed()
    [ban] = found(report, BAN)
    assert ban.proven
    assert report.deployment["stage"] == "finished"


@pytest.mark.parametrize("phase", [0, 2, 7])
def test_a_ban_says_what_was_signed_twice(tmp_path: Path, phase: int) -> None:
    """Two score vectors (phase 0), two votes, and two votes for a phase that does not exist."""
    run = Run.on_revm(tmp_path)
    run.ban(run.committee[0], phase)
    report = audit(run.ledger, run.blobs)
    [ban] = found(report, BAN)
    assert (ban.proven, len(ban.evidence)) == (True, 3)
    says = {
        0: "two different score vectors in round 1",
        2: "two different replies in view 1 of the election of round 1",
        7: "two different replies in view 1 of phase 7 of round 1",
    }
    assert ban.sentence == f"it was banned for {says[phase]}"


def test_a_relayed_transaction_is_refused_and_leaves_no_trace(tmp_path: Path) -> None:
    run = Run.on_revm(tmp_path)
    direct, run.ledger = run.ledger, RelayedLedger(run.chain, run.ledger)
    with refused(RefusalCode.NOT_SENT_BY_ACCOUNT):
        run.play()
    run.ledger = direct
    run.play()
    report = audit(run.ledger, run.blobs)
    assert (report.outcome, report.findings) == (AuditOutcome.PASSED, ()), readable(report)


def test_a_sender_cannot_replace_the_certified_record(tmp_path: Path) -> None:
    run = Run.on_revm(tmp_path)
    liar = min(run.committee)
    record = run.prepare(Deviation(vectors=dev.scaled(2.0)))
    other = run.published(dev.whitewashed(record, run))
    judged = run.judge(record)
    run.published(record)
    with refused(RefusalCode.REQUEST_NOT_SIGNED):
        run.decide(judged, run.inputs.closing.base, record=other)
    run.conclude(record)
    report = run.passed()
    [lie] = found(report, FALSE_SCORES)
    assert lie.clients == (liar,)


def test_low_bits_of_distances_choose_no_seed(tmp_path: Path) -> None:
    """The seed follows from the reveal: a member that publishes last has nothing to grind."""
    seeds, records = set(), set()
    for number, factor in enumerate((1.0, 1 + 3e-10, 1 - 3e-10)):
        folder = tmp_path / str(number)
        folder.mkdir()
        run = Run.on_revm(folder).play(Deviation(vectors=dev.scaled(factor)))
        report = audit(run.ledger, run.blobs)
        seeds.add(run.seed)
        records.add(run.outcome(1).record)
        assert (report.outcome, report.findings) == (AuditOutcome.PASSED, ()), readable(report)
    assert (len(seeds), len(records)) == (1, 3)
