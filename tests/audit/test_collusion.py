"""A committee that colludes: every signature is right, the contract took it, and yet it is named.

Each case is a run whose second round departs from the protocol in one way; the whole committee
signs it. The table says which step must fail, with which fact, and whom it must name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from ledger.audit.checks.chain import NOT_SAMPLED
from ledger.audit.checks.rounds import (
    BASE_DIFFERS,
    CLAIM_NOT_SIGNED,
    DISTANCE_DIFFERS,
    DROPOUT,
    EQUAL_PAYLOADS,
    FALSE_SCORES,
    HAS_COMMITTED,
    HAS_NOT_COMMITTED,
    INPUTS_OPEN,
    MODEL_DIFFERS,
    MODEL_NOT_FINITE,
    NO_MEMBER,
    OPENS_NO_COMMITMENT,
    RANKED_DIFFER,
    RECORD_CLIENTS,
    RECORD_MALFORMED,
    RECORD_OF_ANOTHER,
    REFUSED_SCORES,
    REVEAL_DIFFERS,
    SCORES_COUNTED,
    SCORES_REFUSED,
    SCORES_ROOT_DIFFERS,
    SILENT_MEMBER,
    TOO_FEW_SCORES,
    TWO_VECTORS,
    UPDATE_MALFORMED,
    UPDATE_USABLE,
    UPDATES_ROOT_DIFFERS,
    VECTOR_TOO_LONG,
)
from ledger.audit.engine import audit
from ledger.audit.report import (
    AuditOutcome,
    AuditReport,
    AuditStep,
    Fact,
    Finding,
    FindingKind,
    StepOutcome,
)
from ledger.audit.report_text import readable
from ledger.protocol.documents.record import RoundRecord, encode_record
from ledger.protocol.encoding import sha256
from ledger.protocol.inputs import Participants
from ledger.protocol.parameters import MAX_VIEWS
from ledger.protocol.types import REFUSALS, ClientId, DropoutReason, RefusalReason
from tests.audit import deviations as dev
from tests.audit.runs import PARAMETERS, Deviation, Run, contradiction_in

Who = Callable[[Run], ClientId | None]
DIRECTION = {"strategy": 3}


def nobody(_run: Run) -> None:
    return None


@dataclass(frozen=True)
class Case:
    """What the committee does, which step must fail, with which fact, and whom it must name."""

    deviation: Deviation
    step: AuditStep
    fact: Fact
    who: Who = nobody
    says: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


def counted(reason: RefusalReason, deviation: Deviation, **settings: Any) -> Case:
    """Return the case of scores that count though they must not."""
    says = REFUSALS[reason]
    step, fact = AuditStep.DISTANCES, SCORES_COUNTED
    return Case(deviation, step, fact, dev.first_member, says, settings)


def lie(vectors: Callable[[Any, Run], Any], **settings: Any) -> Case:
    deviation = Deviation(vectors=vectors, record=dev.lies_count)
    return counted(RefusalReason.FALSE_DISTANCE, deviation, **settings)


def refused(reason: RefusalReason) -> Case:
    """Return the case of true scores that are left out for a reason that does not hold."""
    deviation = Deviation(record=dev.refuses(reason))
    step, fact = AuditStep.DISTANCES, SCORES_REFUSED
    return Case(deviation, step, fact, dev.first_member, REFUSALS[reason])


def bound(change: Callable[[RoundRecord, Run], RoundRecord], **more: Any) -> Deviation:
    return Deviation(record_blob=dev.as_blob(change), **more)


def empty(record: RoundRecord, _run: Run) -> RoundRecord:
    return RoundRecord(record.round, record.base, (), (), (), ())


def of_round_1(_data: bytes, _run: Run) -> bytes:
    return encode_record(RoundRecord(1, sha256(b"a base"), (), (), (), ()))


COMPLETE, DISTANCES, RANKING = AuditStep.COMPLETENESS, AuditStep.DISTANCES, AuditStep.RANKING
BLOBS, SIGNED = AuditStep.BLOBS, AuditStep.CERTIFICATES
first, last, stranger = dev.first_member, dev.last_trainer, dev.bystander
CASES = {
    "a model that does not follow": Case(
        Deviation(judgement=dev.wrong_model), AuditStep.MODEL, MODEL_DIFFERS
    ),
    "a mean moved by one ulp": Case(
        Deviation(judgement=dev.one_more_ulp), AuditStep.MEANS, DISTANCE_DIFFERS, dev.first_trainer
    ),
    "false distances to trainers counted": lie(dev.scaled(1.0001)),
    "false distances to members counted": lie(dev.lies_about_a_member),
    "false direction distances counted": lie(dev.scaled(1.0001), **DIRECTION),
    "distances just beyond the margin counted": lie(dev.scaled(1 + 2.1e-9)),
    "distances out of range counted": counted(
        RefusalReason.OUT_OF_RANGE, bound(dev.lies_count, vectors=dev.out_of_range)
    ),
    "an incomplete vector counted": counted(
        RefusalReason.OTHER_CLIENTS, bound(dev.lies_count, vectors=dev.shorter_vector)
    ),
    "a blob that is no score vector counted": counted(
        RefusalReason.NOT_A_VECTOR, bound(dev.garbage_scores)
    ),
    "a vector over the limit counted": Case(
        bound(dev.too_long_counted), DISTANCES, VECTOR_TOO_LONG, first, "over 100000 bytes"
    ),
    "a vector over the limit refused as no vector": Case(
        Deviation(record=dev.too_long_refused),
        DISTANCES,
        VECTOR_TOO_LONG,
        first,
        "over 100000 bytes",
    ),
    "scores that are not signed": Case(
        Deviation(record=dev.unsigned_scores), DISTANCES, CLAIM_NOT_SIGNED, first
    ),
    "scores of a stranger": Case(bound(dev.with_a_stranger), DISTANCES, NO_MEMBER, stranger),
    "too few scores": Case(
        Deviation(record=dev.too_few_scores), DISTANCES, TOO_FEW_SCORES, says="needs 3"
    ),
    "true scores refused as no vector": refused(RefusalReason.NOT_A_VECTOR),
    "true scores refused as another's": refused(RefusalReason.OF_ANOTHER),
    "true scores refused for want of an update": refused(RefusalReason.NO_USABLE_UPDATE),
    "true scores refused as incomplete": refused(RefusalReason.OTHER_CLIENTS),
    "true scores refused as out of range": refused(RefusalReason.OUT_OF_RANGE),
    "true scores refused as false": refused(RefusalReason.FALSE_DISTANCE),
    "true scores refused as one of two": refused(RefusalReason.TWO_VECTORS),
    "a trainer that the seed did not sample": Case(
        Deviation(participants=dev.swapped_trainer), AuditStep.SAMPLING, NOT_SAMPLED, stranger
    ),
    "another updates root": Case(
        Deviation(judgement=dev.other("updates_root")), RANKING, UPDATES_ROOT_DIFFERS
    ),
    "another scores root": Case(
        Deviation(judgement=dev.other("scores_root")), RANKING, SCORES_ROOT_DIFFERS
    ),
    "a reveal of other payloads": Case(
        Deviation(judgement=dev.other("reveal")), RANKING, REVEAL_DIFFERS
    ),
    "a trainer missing from the ranking": Case(
        Deviation(judgement=dev.without_last_trainer), RANKING, RANKED_DIFFER, last
    ),
    "a payload that opens nobody's commitment": Case(
        Deviation(words=dev.foreign_commitment), BLOBS, OPENS_NO_COMMITMENT, last
    ),
    "a commitment repeated and counted": Case(
        Deviation(words=dev.copied_commitment, payloads=dev.copied_payload),
        BLOBS,
        OPENS_NO_COMMITMENT,
        last,
    ),
    "another base": Case(
        Deviation(base=lambda _base, _run: sha256(b"another base")), SIGNED, BASE_DIFFERS
    ),
    "a record of another base": Case(
        bound(dev.of_base(sha256(b"another base"))), SIGNED, RECORD_OF_ANOTHER
    ),
    "the record of another round": Case(
        Deviation(record_blob=of_round_1), SIGNED, RECORD_OF_ANOTHER
    ),
    "a record that is none": Case(
        Deviation(record_blob=lambda _data, _run: b"nothing"), COMPLETE, RECORD_MALFORMED
    ),
    "an empty record": Case(bound(empty), DISTANCES, TOO_FEW_SCORES, says="0 score vectors"),
    "a trainer left out: no commitment": Case(
        dev.left_out(DropoutReason.NO_COMMITMENT), COMPLETE, HAS_COMMITTED, last
    ),
    "a trainer left out: malformed": Case(
        dev.left_out(DropoutReason.PAYLOAD_MALFORMED), COMPLETE, UPDATE_USABLE, last
    ),
    "a dropout that the record keeps silent about": Case(
        bound(dev.unnamed_dropout, payloads=dev.malformed_payload), COMPLETE, RECORD_CLIENTS, last
    ),
    "a dropout that was not active": Case(
        bound(dev.invented_dropout), COMPLETE, RECORD_CLIENTS, stranger
    ),
    "a trainer without commitment called missing": Case(
        bound(dev.missing_instead, payloads=dev.silent_trainer), COMPLETE, HAS_NOT_COMMITTED, last
    ),
    "a trainer's malformed payload that opens nothing": Case(
        bound(dev.malformed_instead, payloads=dev.malformed_payload),
        BLOBS,
        OPENS_NO_COMMITMENT,
        last,
    ),
    "a malformed update counted": Case(
        bound(dev.counts_the_malformed, payloads=dev.malformed_payload),
        COMPLETE,
        UPDATE_MALFORMED,
        last,
    ),
}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run after its first round, of which every case takes a branch."""
    return Run.on_revm(tmp_path_factory.mktemp("begun")).play()


@pytest.mark.parametrize("name", CASES)
def test_a_colluding_committee_is_found_and_named(begun: Run, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    if case.settings:
        run = Run.on_revm(tmp_path, replace(PARAMETERS, **case.settings)).play()
    else:
        run = begun.branched()
    participants = run.participants
    run.play(case.deviation).play()
    report = audit(run.ledger, run.blobs)
    step = report.step(case.step)
    assert report.outcome is AuditOutcome.FAILED, readable(report)
    assert step.outcome is StepOutcome.FAILED, readable(report)
    assert step.contradiction is not None
    assert (step.contradiction.round, step.contradiction.fact) == (2, case.fact), readable(report)
    assert case.says in step.contradiction.sentence
    run.participants = participants
    who = case.who(run)
    named = step.contradiction.clients
    assert named[:1] == (() if who is None else (who,)), readable(report)


def one(report: AuditReport, kind: FindingKind) -> Finding:
    [finding] = [found for found in report.findings if found.kind is kind]
    return finding


def test_a_decision_before_its_inputs_closed_is_found(tmp_path: Path) -> None:
    """All trainers are there, so the contract takes it, but one member could still commit."""

    def without_a_member(participants: Participants, _run: Run) -> Participants:
        return replace(participants, banned=frozenset(participants.committee[-1:]))

    report = Run.on_revm(tmp_path).play(Deviation(participants=without_a_member)).audited()
    contradiction = contradiction_in(report, AuditStep.CERTIFICATES)
    assert contradiction.fact == INPUTS_OPEN


def test_a_decision_in_a_very_late_view_is_valid(tmp_path: Path) -> None:
    """Members stop at view 31; the contract takes any, and so does an audit."""
    report = Run.on_revm(tmp_path).play(Deviation(views=(MAX_VIEWS, 2**32 - 1))).audited()
    assert (report.outcome, report.findings) == (AuditOutcome.PASSED, ()), readable(report)


def test_scores_that_were_rightly_refused_are_kept_as_evidence(tmp_path: Path) -> None:
    run = Run.on_revm(tmp_path)
    member = dev.first_member(run)
    run.play(Deviation(record=dev.garbage_refused))
    report = run.passed()
    finding = one(report, REFUSED_SCORES)
    assert (finding.clients, finding.reason) == ((member,), RefusalReason.NOT_A_VECTOR)
    assert (finding.proven, len(finding.evidence)) == (True, 2)


def test_a_refused_vector_over_the_limit_fails_no_other_step(tmp_path: Path) -> None:
    report = Run.on_revm(tmp_path).play(Deviation(record=dev.too_long_refused)).audited()
    unsound = {s.number: s.outcome for s in report.steps if s.outcome is not StepOutcome.PASSED}
    assert unsound == {AuditStep.DISTANCES: StepOutcome.FAILED}, readable(report)
    assert not report.findings, "whoever was left out is the contradiction's"


def test_two_signatures_prove_two_vectors_of_any_length(tmp_path: Path) -> None:
    """Members reply to such a record: they need not have the vectors, so no audit may fail it."""
    run = Run.on_revm(tmp_path)
    member = dev.first_member(run)
    run.play(Deviation(record=dev.two_of_which_one_is_too_long))
    report = run.passed()
    finding = one(report, TWO_VECTORS)
    assert (finding.clients, finding.proven) == ((member,), True)


def test_a_refusal_in_the_tolerance_zone_proves_nobody_guilty(tmp_path: Path) -> None:
    report = Run.on_revm(tmp_path).play(Deviation(vectors=dev.scaled(1 + 1.7e-9))).passed()
    assert not one(report, FALSE_SCORES).proven


def test_distances_in_the_zone_of_doubt_may_count(tmp_path: Path) -> None:
    report = Run.on_revm(tmp_path).play(Deviation(vectors=dev.scaled(1 + 1.2e-9))).passed()
    assert not report.findings


def test_a_silent_member_is_a_finding_that_nobody_can_prove(tmp_path: Path) -> None:
    """Whitewashing by the whole committee: what nobody recorded leaves a silence."""
    run = Run.on_revm(tmp_path)
    liar = dev.first_member(run)
    run.play(Deviation(vectors=dev.scaled(2.0), record=dev.whitewashed))
    report = run.passed()
    finding = one(report, SILENT_MEMBER)
    assert (finding.clients, finding.proven) == ((liar,), False)


def test_equal_payloads_are_noted(tmp_path: Path) -> None:
    run = Run.on_revm(tmp_path)
    pair = (run.trainers[0], run.trainers[-1])
    run.play(Deviation(payloads=dev.copied_payload))
    report = run.passed()
    finding = one(report, EQUAL_PAYLOADS)
    assert (finding.clients, len(finding.evidence)) == (pair, 1)


def test_a_repeated_commitment_is_worth_nothing(tmp_path: Path) -> None:
    """The copier cannot open the word it repeats; an honest committee finds its payload missing."""
    run = Run.on_revm(tmp_path)
    copier = dev.last_trainer(run)
    run.play(Deviation(words=dev.copied_commitment, withheld=lambda run: run.trainers[-1:]))
    report = run.passed()
    finding = one(report, DROPOUT)
    assert (finding.clients, finding.reason) == ((copier,), DropoutReason.PAYLOAD_MISSING)


def test_a_model_that_is_not_finite_is_found(tmp_path: Path) -> None:
    def large(payloads: dict[ClientId, bytes], run: Run) -> dict[ClientId, bytes]:
        return dict.fromkeys(payloads, b"\xff\xff\x7f\x7f" * 8)

    run = Run.on_revm(tmp_path, replace(PARAMETERS, server_rate=1e300)).play(
        Deviation(payloads=large)
    )
    report = audit(run.ledger, run.blobs)
    contradiction = contradiction_in(report, AuditStep.MODEL)
    assert contradiction.fact == MODEL_NOT_FINITE
