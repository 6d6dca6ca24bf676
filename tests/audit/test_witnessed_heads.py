"""Checkpoints beside a run: what a roll-back or a fork meets that no audit of a home alone sees."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from typing import Any

import pytest

from ledger.audit.anchors import read_report, report_bytes
from ledger.audit.checks.chain import (
    ANCHORED_HEAD_DIFFERS,
    ANCHORS_UNCHECKED,
    CHECKPOINT_UNCHECKED,
    CHECKPOINT_WITHHELD,
    LOGS_INCOMPLETE,
    NOT_FINAL,
    NOT_WITNESSED,
    ROUNDS_NOT_WITNESSED,
    SIGNED_ROUNDS_ABSENT,
    SIGNED_TREE_DIFFERS,
    SIGNED_TREES_CONFLICT,
)
from ledger.audit.engine import audit
from ledger.audit.report import AnchoredHead, AuditOutcome, AuditReport, AuditStep, Fact, Need
from ledger.audit.report_text import readable
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.ports import Log, LogQuery, NotServedError
from ledger.protocol.types import Digest
from ledger.transparency.notes import (
    Checkpoint,
    KeyUse,
    SignedCheckpoint,
    SigningKey,
    cosign,
    sign_checkpoint,
)
from ledger.transparency.policy import CheckpointEvidence, parse_policy, weigh
from ledger.transparency.tree import head_entries, leaf_hash, origin_of, root_of
from tests.audit.honest import two_fail
from tests.audit.runs import Deviation, Run
from tests.audit.unreliable_node import UnreliableNode
from tests.transparency.support import NOW, WITNESSES, policy_text

POLICY = parse_policy(policy_text("2").encode())


@dataclass
class Forks:
    """One run that has gone two ways since its first round, and a backup from there."""

    one: Run
    other: Run
    backup: Run


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Forks:
    run = Run.on_revm(tmp_path_factory.mktemp("forks")).play()
    one, other, backup = run.branched(), run.branched(), run.branched()
    one.play()
    one.play()
    other.play(Deviation(payloads=two_fail))
    other.play()
    return Forks(one, other, backup)


def leaves_of(run: Run) -> list[Digest]:
    recorded = run.ledger.recorded_in(0, run.chain.head().number)
    entries = head_entries(run.ledger.domain(), (each.event for each in recorded))
    return [leaf_hash(entry.encoded()) for entry in entries]


def signed_by_log(run: Run, count: int, witnesses: int = 2) -> SignedCheckpoint:
    """Return what the run's log signs of its first rounds, cosigned by some witnesses."""
    name = origin_of("example.org/cmfl", run.ledger.domain())
    log = SigningKey(name, KeyUse.NOTE, bytes([1] * 32))
    signed = sign_checkpoint(Checkpoint(name, count, root_of(leaves_of(run)[:count])), log)
    lines = [cosign(signed.note.text, witness, NOW) for witness in WITNESSES[:witnesses]]
    return replace(signed, note=signed.note.with_signatures(lines))


def evidence(*signed: SignedCheckpoint) -> CheckpointEvidence:
    return weigh(POLICY, signed, NOW, 86_400)


def audited(run: Run, *signed: SignedCheckpoint, strict: bool = False) -> AuditReport:
    found = evidence(*signed)
    return audit(run.ledger, run.blobs, checkpoints=found, strict=strict)


def contradiction_of(report: AuditReport) -> Fact:
    found = report.step(AuditStep.HEAD).contradiction
    assert found is not None, readable(report)
    return found.fact


def needs_of(report: AuditReport) -> set[Need]:
    return {missing.need for missing in report.step(AuditStep.HEAD).missing}


def test_a_witnessed_run_passes_and_says_by_whom(honest: Run) -> None:
    rounds = len(leaves_of(honest))
    report = audited(honest, signed_by_log(honest, rounds), strict=False)
    assert report.outcome is AuditOutcome.PASSED, readable(report)
    assert report.witnessed is not None
    assert (report.witnessed.rounds, report.witnessed.witnesses) == (rounds, ("W0", "W1"))
    assert report.witnessed.sentence in readable(report)
    assert f"had exactly {rounds} rounds" in report.witnessed.sentence
    data = json.loads(json.dumps(report.as_dict()))
    assert data["witnessed"]["time"] == NOW
    assert ROUNDS_NOT_WITNESSED.code not in report.finding_counts


def test_an_older_copy_of_a_home_is_refused_though_nobody_kept_a_head(forks: Forks) -> None:
    assert audit(forks.backup.ledger, forks.backup.blobs).outcome is AuditOutcome.PASSED
    report = audited(forks.backup, signed_by_log(forks.one, 3))
    assert report.outcome is AuditOutcome.FAILED
    assert contradiction_of(report) == SIGNED_ROUNDS_ABSENT
    assert "signed 3 rounds of this run; in fact only 1 have ended here" in str(readable(report))


def anchor_of(run: Run, number: int) -> AnchoredHead:
    recorded = run.ledger.recorded_in(0, run.chain.head().number)
    entry = head_entries(run.ledger.domain(), (each.event for each in recorded))[number - 1]
    head = f"0x{entry.head.hex()}"
    return AnchoredHead("a.tsr", run.chain.chain_id, run.ledger.address, number, head, "now", "it")


def test_an_older_copy_is_refused_by_an_anchor_alone(forks: Forks) -> None:
    anchor = anchor_of(forks.one, 3)
    report = audit(forks.backup.ledger, forks.backup.blobs, anchors=(anchor,))
    assert report.outcome is AuditOutcome.FAILED
    assert contradiction_of(report) == ANCHORED_HEAD_DIFFERS
    holds = f"round 3: the anchor a.tsr holds the head {anchor.head}; in fact the run's head is"
    assert f"{holds} none: only 1 rounds have ended: " in str(readable(report))


def test_a_forked_chain_is_refused_though_nobody_kept_a_head(forks: Forks) -> None:
    assert audit(forks.other.ledger, forks.other.blobs).outcome is AuditOutcome.PASSED
    for size in (2, 3):
        report = audited(forks.other, signed_by_log(forks.one, size))
        assert report.outcome is AuditOutcome.FAILED
        assert contradiction_of(report) == SIGNED_TREE_DIFFERS
    # What both have in common contradicts neither.
    assert audited(forks.other, signed_by_log(forks.one, 1)).outcome is AuditOutcome.PASSED


def test_a_signature_of_the_log_alone_binds_it(forks: Forks) -> None:
    """A quorum is on an old checkpoint, and the log has signed a newer one since."""
    old, new = signed_by_log(forks.one, 1), signed_by_log(forks.one, 3, witnesses=0)
    report = audited(forks.backup, old, new)
    assert contradiction_of(report) == SIGNED_ROUNDS_ABSENT
    assert audited(forks.one, old, new).outcome is AuditOutcome.PASSED


def test_a_log_that_signs_two_histories_is_named_beside_either(forks: Forks) -> None:
    both = signed_by_log(forks.one, 3), signed_by_log(forks.other, 3)
    for run in (forks.one, forks.other):
        report = audited(run, *both)
        assert report.outcome is AuditOutcome.FAILED
        assert contradiction_of(report) == SIGNED_TREES_CONFLICT
        assert "it signed two histories" in str(readable(report))


def test_rounds_after_the_checkpoint_are_named_as_not_witnessed(forks: Forks) -> None:
    report = audited(forks.one, signed_by_log(forks.one, 1))
    assert report.outcome is AuditOutcome.PASSED, readable(report)
    [finding] = [each for each in report.findings if each.kind == ROUNDS_NOT_WITNESSED]
    assert (finding.round, finding.proven) == (2, False)
    assert any("no quorum of witnesses confirms them yet" in line for line in readable(report))
    strict = audited(forks.one, signed_by_log(forks.one, 1), strict=True)
    assert strict.outcome is AuditOutcome.INCOMPLETE


def test_without_a_quorum_nothing_is_said_of_what_is_newest(forks: Forks) -> None:
    for signed in ((), (signed_by_log(forks.one, 3, witnesses=1),)):
        report = audited(forks.one, *signed)
        assert (report.outcome, needs_of(report)) == (AuditOutcome.INCOMPLETE, {NOT_WITNESSED})
        assert report.witnessed is not None
        assert report.witnessed.sentence == "No quorum of witnesses confirms any round."


def test_a_size_that_nobody_shows_leaves_the_audit_open(forks: Forks) -> None:
    found = replace(evidence(signed_by_log(forks.one, 3)), withheld=("W2 has cosigned 9 entries",))
    report = audit(forks.one.ledger, forks.one.blobs, checkpoints=found)
    assert (report.outcome, needs_of(report)) == (AuditOutcome.INCOMPLETE, {CHECKPOINT_WITHHELD})


def test_an_audit_on_top_of_another_holds_all_rounds_against_the_log(forks: Forks) -> None:
    earlier = read_report(report_bytes(audit(forks.one.ledger, forks.one.blobs)))
    for run, code in ((forks.one, AuditOutcome.PASSED), (forks.other, AuditOutcome.FAILED)):
        found = evidence(signed_by_log(run, 3))
        report = audit(forks.one.ledger, forks.one.blobs, earlier=earlier, checkpoints=found)
        assert report.outcome is code, readable(report)


def on_node(run: Run, final: int, signed: SignedCheckpoint, **lies: Any) -> AuditReport:
    """Return the audit of a run on a node, with an anchor that every run has."""
    node = UnreliableNode([run.chain], final, random.Random(0), **lies)
    ledger = CommitteeLedger(node, run.ledger.address, run.ledger.from_block)
    anchors = (anchor_of(run, 1),)
    return audit(ledger, run.blobs, checkpoints=evidence(signed), anchors=anchors)


def test_what_is_not_final_on_a_node_contradicts_nothing_yet(forks: Forks) -> None:
    """A node that lags behind cannot be told from an older copy."""
    head = forks.backup.chain.head().number
    signed = signed_by_log(forks.one, 3)
    report = on_node(forks.backup, head - 1, signed)
    assert (report.outcome, needs_of(report)) == (AuditOutcome.INCOMPLETE, {NOT_FINAL})
    assert on_node(forks.backup, head, signed).outcome is AuditOutcome.FAILED
    # The first two rounds are final here, and others than those that were signed.
    head = forks.other.chain.head().number
    assert on_node(forks.other, head, signed_by_log(forks.one, 2)).outcome is (AuditOutcome.FAILED)


def test_a_log_that_a_node_leaves_out_contradicts_no_checkpoint(forks: Forks) -> None:
    run = forks.one
    logs = run.chain.logs(LogQuery(run.ledger.address, [], 0, run.chain.head().number))
    for hidden in logs[-3:]:

        def lie(call: str, answer: Any, hidden: Log = hidden) -> Any:
            return [log for log in answer if log != hidden] if call == "logs" else answer

        report = on_node(run, run.chain.head().number, signed_by_log(run, 3), lie=lie)
        assert report.outcome is AuditOutcome.INCOMPLETE, readable(report)
        assert LOGS_INCOMPLETE in needs_of(report)


def test_a_run_that_cannot_be_read_leaves_its_checkpoints_open(forks: Forks) -> None:

    def unserved(call: str, answer: Any) -> Any:
        if call == "logs":
            raise NotServedError("the node has no logs now")
        return answer

    report = on_node(forks.one, 0, signed_by_log(forks.one, 3), lie=unserved)
    assert report.outcome is AuditOutcome.INCOMPLETE
    assert {CHECKPOINT_UNCHECKED, ANCHORS_UNCHECKED} <= needs_of(report)
