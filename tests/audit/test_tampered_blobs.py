"""Blobs: changed ones fail the audit by name, deleted ones make it incomplete by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from ledger.audit.checks.chain import UPDATES_MISSING
from ledger.audit.checks.rounds import (
    BLOB_MISSING,
    BLOB_UNREADABLE,
    FALSE_SCORES,
    PAYLOAD_APPEARED,
    REFUSAL_UNCHECKED,
)
from ledger.audit.engine import audit
from ledger.audit.report import AuditOutcome, AuditReport, AuditStep, BlobKind, StepOutcome
from ledger.audit.report_text import readable
from ledger.protocol.documents.record import decode_record
from ledger.protocol.encoding import sha256, vector_bytes
from ledger.protocol.errors import BlobUnreachableError
from ledger.protocol.judgement import Judgement
from ledger.protocol.types import ClientId, Digest, RefusalReason
from ledger.storage.blobs import MAX_BLOB_BYTES, BlobReader
from tests.audit import deviations as dev
from tests.audit.blobs import ChangedBlobs, kinds
from tests.audit.remembered import remembered
from tests.audit.runs import DIMENSION, PARAMETERS, Deviation, Run, contradiction_in

KINDS = (
    *(BlobKind.CONFIGURATION, "first model", BlobKind.MODEL, BlobKind.RECORD, BlobKind.PAYLOAD),
    *("malformed payload", BlobKind.VECTOR, "refused score vector"),
)


MOST_TRIED = 8  # blobs of each kind; `test_tamper_table.py` tries them too


def with_blob(run: Run, digest: Digest, data: bytes | None) -> AuditReport:
    return audit(remembered(run.ledger), ChangedBlobs(run.blobs, {digest: data}))


def failing(report: AuditReport) -> set[int]:
    return {step.number for step in report.steps if step.outcome is StepOutcome.FAILED}


@pytest.mark.parametrize("kind", KINDS)
def test_a_deleted_blob_of_any_kind_makes_the_audit_incomplete(honest: Run, kind: str) -> None:
    for digest in kinds(honest)[kind][-MOST_TRIED:]:
        report = with_blob(honest, digest, None)
        assert report.outcome is AuditOutcome.INCOMPLETE, readable(report)
        missing = [m for m in report.step(AuditStep.BLOBS).missing if m.need == BLOB_MISSING]
        assert [m.detail for m in missing] == [f"0x{digest.hex()}"]
        assert "is missing" in missing[0].sentence
        assert readable(report)[-1].startswith("INCOMPLETE")


@dataclass
class FailingStore:
    """A store that does not answer for some blobs."""

    blobs: BlobReader
    failing: set[Digest]

    def get(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> bytes:
        if digest in self.failing:
            raise BlobUnreachableError("the store says: [503] try later\x1b")
        return self.blobs.get(digest, limit)

    def has(self, digest: Digest) -> bool:
        return self.blobs.has(digest)


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_does_not_answer_contradicts_nothing(honest: Run, kind: str) -> None:
    digest = kinds(honest)[kind][0]
    report = audit(honest.ledger, FailingStore(honest.blobs, {digest}))
    assert report.outcome is AuditOutcome.INCOMPLETE, readable(report)
    [missing] = [m for m in report.step(AuditStep.BLOBS).missing if m.need == BLOB_UNREADABLE]
    assert missing.sentence.endswith(
        f"cannot be read: 0x{digest.hex()} (the store says: (503) try later?)"
    )


def test_a_present_payload_recorded_as_missing_is_a_remark(tmp_path: Path) -> None:
    """Nobody can know since when: only strictly is something left open."""
    run = Run.on_revm(tmp_path)
    gone = run.trainers[-1]
    run.play(Deviation(withheld=lambda _run: (gone,)))
    run.round = 1
    before = audit(run.ledger, run.blobs, strict=True)
    late = run.blobs.put(run.payload(gone))
    reports = [audit(run.ledger, run.blobs, strict=strict) for strict in (False, True)]
    unlisted = audit(run.ledger, ChangedBlobs(run.blobs, {}), strict=True)
    assert before.outcome is AuditOutcome.PASSED, readable(before)
    assert [report.outcome for report in reports] == [AuditOutcome.PASSED, AuditOutcome.INCOMPLETE]
    [remark] = [f for f in reports[0].findings if f.kind == PAYLOAD_APPEARED]
    assert (remark.round, remark.clients, remark.proven) == (1, (gone,), False)
    assert remark.evidence == (f"0x{late.hex()}",)
    assert reports[0].as_dict()["remarks"] == 1
    lines = readable(reports[0])
    title = lines.index("Claims that can no longer be checked:")
    assert lines[title + 1].endswith(f"when it appeared cannot be checked (0x{late.hex()})")
    assert unlisted.outcome is AuditOutcome.PASSED, "a store that cannot list its blobs cannot tell"


def lacking(report: AuditReport) -> set[int]:
    return {s.number for s in report.steps if s.outcome is StepOutcome.NOT_CHECKABLE}


def test_a_missing_payload_leaves_only_its_own_steps_open(honest: Run) -> None:
    event = honest.outcome(4)
    client = event.accepted[0]
    report = with_blob(honest, payload_of(honest, 4, client), None)
    assert lacking(report) == {AuditStep.BLOBS, AuditStep.DISTANCES, AuditStep.MODEL}
    for step in (AuditStep.BLOBS, AuditStep.DISTANCES, AuditStep.MODEL):
        assert any(missing.clients == (client,) for missing in report.step(step).missing)


def test_a_false_distance_is_named_though_another_payload_is_missing(tmp_path: Path) -> None:
    run = Run.on_revm(tmp_path)
    liar, missing = dev.first_member(run), run.trainers[-1]
    run.play(Deviation(vectors=dev.scaled(2.0), record=dev.lies_count))
    gone = {payload_of(run, 1, missing): None}
    report = audit(run.ledger, ChangedBlobs(run.blobs, gone))
    contradiction = contradiction_in(report, AuditStep.DISTANCES)
    assert contradiction.clients[0] == liar
    assert report.step(AuditStep.DISTANCES).missing


def test_without_the_members_payload_its_distances_are_not_called_false(tmp_path: Path) -> None:
    run = Run.on_revm(tmp_path)
    liar = dev.first_member(run)
    run.play(Deviation(vectors=dev.scaled(2.0), record=dev.lies_count))
    gone = {payload_of(run, 1, liar): None}
    report = audit(run.ledger, ChangedBlobs(run.blobs, gone))
    assert lacking(report) == {AuditStep.BLOBS, AuditStep.DISTANCES}, readable(report)


def test_no_direction_can_be_recomputed_while_a_payload_is_missing(tmp_path: Path) -> None:
    """One distance of direction depends on all updates, by their median length."""
    run = Run.on_revm(tmp_path, replace(PARAMETERS, strategy=3)).play(
        Deviation(vectors=dev.scaled(2.0), record=dev.lies_count)
    )
    gone = {payload_of(run, 1, run.outcome().accepted[-1]): None}
    report = audit(run.ledger, ChangedBlobs(run.blobs, gone))
    assert lacking(report) == {AuditStep.BLOBS, AuditStep.DISTANCES, AuditStep.MODEL}, readable(
        report
    )


def test_a_refusal_that_needs_a_missing_payload_cannot_be_judged(tmp_path: Path) -> None:
    run = Run.on_revm(tmp_path)
    liar, missing = dev.first_member(run), run.trainers[-1]
    run.play(Deviation(vectors=dev.scaled(2.0)))
    gone = {payload_of(run, 1, missing): None}
    report = audit(run.ledger, ChangedBlobs(run.blobs, gone))
    assert report.outcome is AuditOutcome.INCOMPLETE, readable(report)
    needs = {(m.need, m.clients) for m in report.step(AuditStep.DISTANCES).missing}
    assert needs == {(UPDATES_MISSING, (missing,)), (REFUSAL_UNCHECKED, (liar,))}
    [finding] = [f for f in report.findings if f.kind == FALSE_SCORES]
    assert not finding.proven


def test_a_missing_vector_leaves_what_follows_from_it_open(honest: Run) -> None:
    vector = kinds(honest)[BlobKind.VECTOR][0]
    report = with_blob(honest, vector, None)
    assert lacking(report) == {AuditStep.BLOBS, AuditStep.DISTANCES, AuditStep.MEANS}


def test_a_missing_refused_vector_leaves_only_its_refusal_open(honest: Run) -> None:
    [alone] = kinds(honest)["refused score vector"]
    report = with_blob(honest, alone, None)
    assert lacking(report) == {AuditStep.BLOBS, AuditStep.DISTANCES}, readable(report)


@pytest.mark.parametrize("data", [None, b"another"])
def test_no_audit_reads_the_two_vectors_of_one_member(honest: Run, data: bytes | None) -> None:
    truth = audit(honest.ledger, honest.blobs)
    records = [decode_record(honest.blobs.get(one)) for one in kinds(honest)[BlobKind.RECORD]]
    refused = [entry for record in records for entry in record.refused]
    pair = [entry for entry in refused if entry.reason is RefusalReason.TWO_VECTORS]
    changed = {entry.signed.scores.digest: data for entry in pair}
    assert len(changed) == 2
    report = audit(honest.ledger, ChangedBlobs(honest.blobs, changed))
    assert report.outcome is AuditOutcome.PASSED, readable(report)
    assert report.findings == truth.findings
    assert report.counts == truth.counts


def test_a_missing_malformed_payload_leaves_only_its_dropout_open(honest: Run) -> None:
    [payload] = kinds(honest)["malformed payload"]
    report = with_blob(honest, payload, None)
    assert lacking(report) == {AuditStep.BLOBS, AuditStep.COMPLETENESS}, readable(report)
    [missing] = report.step(AuditStep.COMPLETENESS).missing
    assert missing.need == UPDATES_MISSING


def test_a_missing_model_is_recomputed_where_its_parts_are_there(honest: Run) -> None:
    assert lacking(with_blob(honest, kinds(honest)[BlobKind.MODEL][1], None)) == {AuditStep.BLOBS}


def test_without_any_blob_the_chain_alone_still_holds(honest: Run) -> None:
    everything = [digest for digests in kinds(honest).values() for digest in digests]
    report = audit(honest.ledger, ChangedBlobs(honest.blobs, dict.fromkeys(everything)))
    outcomes = [step.outcome for step in report.steps]
    assert outcomes[1:4] == [StepOutcome.PASSED] * 3
    assert report.outcome is AuditOutcome.INCOMPLETE
    assert report.rounds == 5


@pytest.mark.parametrize(("size", "step"), [(4 * DIMENSION + 4, 1), (4 * DIMENSION - 4, 1)])
def test_a_first_model_of_another_size_is_named(tmp_path: Path, size: int, step: int) -> None:
    report = Run.on_revm(tmp_path, initial=bytes(size)).audited()
    assert failing(report) == {step}, readable(report)


def test_a_later_model_of_another_size_is_named(tmp_path: Path) -> None:
    def short(judged: Judgement, _run: Run) -> Judgement:
        model = judged.model[:-1]
        return replace(
            judged, model=model, opening=replace(judged.opening, model=sha256(vector_bytes(model)))
        )

    report = Run.on_revm(tmp_path).play(Deviation(judgement=short)).audited()
    assert failing(report) == {AuditStep.MODEL}, readable(report)
    assert report.step(AuditStep.MODEL).contradictions == 2


def payload_of(run: Run, round_number: int, client: ClientId) -> Digest:
    record = decode_record(run.blobs.get(run.outcome(round_number).record))
    return record.payloads()[client]
