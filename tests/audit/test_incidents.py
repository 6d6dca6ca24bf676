"""Incidents: nobody signs the document, so only the accused's own signature proves anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ledger.audit.checks.rounds import (
    BLOB_DAMAGED,
    EQUIVOCATION,
    IGNORED_INCIDENTS,
    INCIDENTS_MISSING,
    NO_QUORUM,
    SILENT_PRIMARY,
    WRONG_PROPOSAL,
)
from ledger.audit.engine import audit
from ledger.audit.report import AuditOutcome, AuditReport, AuditStep, BlobKind
from ledger.audit.report_text import readable
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.record import Incident, encode_record
from ledger.protocol.encoding import ResultPreimage, aggregation_result, set_digest, sha256, to_hex
from ledger.protocol.judgement import Judgement
from ledger.protocol.types import (
    NO_DIGEST,
    ClientId,
    Digest,
    IncidentKind,
    Phase,
    SignedVote,
    VoteKind,
)
from tests.audit.blobs import ChangedBlobs
from tests.audit.runs import CLIENTS, Deviation, Run, contradiction_in

AGGREGATION, ELECTION = Phase


def first_primary(run: Run, phase: Phase = AGGREGATION) -> ClientId:
    return run.primary(phase, 0)


def request(
    run: Run, phase: Phase, opening: ResultPreimage, set_of: Digest, base: Digest | None = None
) -> SignedVote:
    base = run.inputs.closing.base if base is None else base
    what = (base, set_of, aggregation_result(opening))
    return run.vote(VoteKind.REQUEST, phase, 0, first_primary(run, phase), what)


def proposal(
    run: Run, opening: ResultPreimage, set_of: Digest, phase: Phase = AGGREGATION
) -> Incident:
    vote = request(run, phase, opening, set_of)
    accused = first_primary(run, phase)
    return Incident(phase, 0, accused, IncidentKind.WRONG_PROPOSAL, (vote,), opening)


def right_proposal(judged: Judgement, run: Run) -> Incident:
    opening = replace(judged.opening, record=run.blobs.put(encode_record(judged.record)))
    return proposal(run, opening, judged.set_digest(AGGREGATION))


def wrong_root(judged: Judgement, run: Run) -> Incident:
    opening = replace(judged.opening, updates_root=sha256(b"another tree"))
    return proposal(run, opening, judged.set_digest(AGGREGATION))


def wrong_model(judged: Judgement, run: Run) -> Incident:
    opening = replace(judged.opening, model=sha256(b"another model"))
    return proposal(run, opening, judged.set_digest(AGGREGATION))


def wrong_set(judged: Judgement, run: Run) -> Incident:
    return proposal(run, judged.opening, set_digest(run.trainers[:2]))


def wrong_election(judged: Judgement, run: Run) -> Incident:
    return proposal(run, judged.opening, set_digest(run.trainers[:5]), ELECTION)


def wrong_base(judged: Judgement, run: Run) -> Incident:
    vote = request(
        run, AGGREGATION, judged.opening, judged.set_digest(AGGREGATION), sha256(b"other inputs")
    )
    kind = IncidentKind.WRONG_PROPOSAL
    return Incident(AGGREGATION, 0, first_primary(run), kind, (vote,), judged.opening)


def record_with_a_false_refusal(judged: Judgement, run: Run) -> Incident:
    """Propose a record that leaves true scores out."""
    record = replace(judged.record, scores=judged.record.scores[:2])
    opening = replace(judged.opening, record=run.blobs.put(encode_record(record)))
    return proposal(run, opening, judged.set_digest(AGGREGATION))


def record_that_is_none(judged: Judgement, run: Run) -> Incident:
    opening = replace(judged.opening, record=run.blobs.put(b"no record"))
    return proposal(run, opening, judged.set_digest(AGGREGATION))


def two_replies(_judged: Judgement, run: Run) -> Incident:
    accused = first_primary(run)
    sets = (sha256(b"a set"), sha256(b"another set"))
    votes = tuple(
        run.vote(VoteKind.REPLY, AGGREGATION, 0, accused, (NO_DIGEST, set_of, NO_DIGEST))
        for set_of in sets
    )
    return Incident(AGGREGATION, 0, accused, IncidentKind.EQUIVOCATION, votes)


def silent(_judged: Judgement, run: Run) -> Incident:
    return Incident(AGGREGATION, 0, first_primary(run), IncidentKind.SILENT)


def no_quorum(_judged: Judgement, run: Run) -> Incident:
    return Incident(AGGREGATION, 0, first_primary(run), IncidentKind.NO_QUORUM)


def missing_record(judged: Judgement, run: Run) -> Incident:
    """Accuse of a proposal whose record nobody has: its opening may be right."""
    opening = replace(judged.opening, record=sha256(b"a record that was never published"))
    return proposal(run, opening, judged.set_digest(AGGREGATION))


def opening_of_another_result(judged: Judgement, run: Run) -> Incident:
    incident = wrong_model(judged, run)
    return replace(incident, opening=judged.opening)


def reply_called_a_proposal(judged: Judgement, run: Run) -> Incident:
    what = (run.inputs.closing.base, sha256(b"a set"), aggregation_result(judged.opening))
    accused = first_primary(run)
    vote = run.vote(VoteKind.REPLY, AGGREGATION, 0, accused, what)
    kind = IncidentKind.WRONG_PROPOSAL
    return Incident(AGGREGATION, 0, accused, kind, (vote,), judged.opening)


def signed_by_another(judged: Judgement, run: Run) -> Incident:
    incident = wrong_model(judged, run)
    other = next(m for m in run.committee if m != incident.member)
    votes = (replace(incident.votes[0], member=other),)
    return replace(incident, member=other, votes=votes)


def one_vote_twice(judged: Judgement, run: Run) -> Incident:
    incident = two_replies(judged, run)
    return replace(incident, votes=(incident.votes[0], incident.votes[0]))


def two_slots(judged: Judgement, run: Run) -> Incident:
    incident = two_replies(judged, run)
    what = (sha256(b"another base"), sha256(b"a set"), NO_DIGEST)
    vote = run.vote(VoteKind.REPLY, AGGREGATION, 0, incident.member, what)
    return replace(incident, votes=(incident.votes[0], vote))


def a_stranger(_judged: Judgement, _run: Run) -> Incident:
    return Incident(AGGREGATION, 0, ClientId(CLIENTS), IncidentKind.SILENT)


def another_than_the_primary(_judged: Judgement, run: Run) -> Incident:
    other = next(m for m in run.committee if m != first_primary(run))
    return Incident(AGGREGATION, 0, other, IncidentKind.SILENT)


def a_view_that_decided(_judged: Judgement, run: Run) -> Incident:
    return Incident(AGGREGATION, 1, run.primary(AGGREGATION, 1), IncidentKind.SILENT)


PROVEN = {
    "another root": (wrong_root, WRONG_PROPOSAL),
    "another model": (wrong_model, WRONG_PROPOSAL),
    "another set": (wrong_set, WRONG_PROPOSAL),
    "another committee": (wrong_election, WRONG_PROPOSAL),
    "another base": (wrong_base, WRONG_PROPOSAL),
    "a record that does not hold": (record_with_a_false_refusal, WRONG_PROPOSAL),
    "a record that is none": (record_that_is_none, WRONG_PROPOSAL),
    "two replies": (two_replies, EQUIVOCATION),
}
UNPROVEN = {"silence": (silent, SILENT_PRIMARY), "no quorum": (no_quorum, NO_QUORUM)}
IGNORED = {
    "a right proposal": right_proposal,
    "an opening of another result": opening_of_another_result,
    "a reply called a proposal": reply_called_a_proposal,
    "another's signature": signed_by_another,
    "one vote twice": one_vote_twice,
    "votes in two slots": two_slots,
    "a client that does not exist": a_stranger,
    "another member than the primary": another_than_the_primary,
    "a view that decided": a_view_that_decided,
}


def accused_of(
    folder: Path, accuse: Callable[[Judgement, Run], Incident], *, without_model: bool = False
) -> tuple[Run, ClientId, AuditReport]:
    """Return a run of one round whose incidents accuse somebody, and what its audit says."""
    named: list[ClientId] = []

    def incidents(judged: Judgement, run: Run) -> tuple[Incident, ...]:
        incident = accuse(judged, run)
        named.append(incident.member)
        return (incident,)

    run = Run.on_revm(folder).play(Deviation(incidents=incidents, views=(1, 0)))
    missing = {run.document.initial_model: None} if without_model else {}
    report = audit(run.ledger, ChangedBlobs(run.blobs, missing))
    return run, named[0], report


@pytest.mark.parametrize("name", PROVEN)
def test_incident_that_the_accused_s_signature_proves_is_proven(tmp_path: Path, name: str) -> None:
    accuse, kind = PROVEN[name]
    _, accused, report = accused_of(tmp_path, accuse)
    assert report.outcome is AuditOutcome.PASSED, readable(report)
    [finding] = report.findings
    assert (finding.kind, finding.clients, finding.proven) == (kind, (accused,), True)
    assert finding.evidence


@pytest.mark.parametrize("name", UNPROVEN)
def test_an_incident_without_evidence_is_an_unproven_finding(tmp_path: Path, name: str) -> None:
    accuse, kind = UNPROVEN[name]
    _, accused, report = accused_of(tmp_path, accuse)
    assert report.outcome is AuditOutcome.PASSED, readable(report)
    [finding] = report.findings
    assert (finding.kind, finding.clients, finding.proven) == (kind, (accused,), False)


@pytest.mark.parametrize("name", IGNORED)
def test_an_accusation_that_proves_nothing_changes_nothing(tmp_path: Path, name: str) -> None:
    _, _, report = accused_of(tmp_path, IGNORED[name])
    assert report.outcome is AuditOutcome.PASSED, readable(report)
    assert not report.findings
    assert report.counts[IGNORED_INCIDENTS] == 1


def test_an_accusation_whose_record_is_missing_is_a_remark(tmp_path: Path) -> None:
    """It may be true: only strictly is that something left open."""
    run, _, report = accused_of(tmp_path, missing_record)
    assert report.outcome is AuditOutcome.PASSED, readable(report)
    assert report.counts[IGNORED_INCIDENTS] == 1
    [remark] = report.findings
    assert (remark.kind, remark.clients, remark.proven) == (INCIDENTS_MISSING, (), False)
    assert remark.evidence == (to_hex(sha256(b"a record that was never published")),)
    strictly = audit(run.ledger, run.blobs, strict=True)
    assert strictly.outcome is AuditOutcome.INCOMPLETE
    assert readable(strictly)[-1].startswith("INCOMPLETE: --strict, and 1 remark")


def test_without_the_model_before_a_wrong_root_is_still_proven(tmp_path: Path) -> None:
    _, accused, report = accused_of(tmp_path, wrong_root, without_model=True)
    assert report.outcome is AuditOutcome.INCOMPLETE, readable(report)
    [finding] = report.findings
    assert (finding.clients, finding.proven) == ((accused,), True)


def other_inputs(_data: bytes, run: Run) -> bytes:
    return run.incidents_of(sha256(b"another base"))


@pytest.mark.parametrize("blob", [lambda _data, _run: b"nothing", other_inputs])
def test_a_bogus_incidents_document_changes_nothing(
    tmp_path: Path, blob: Callable[[bytes, Run], bytes]
) -> None:
    report = (
        Run.on_revm(tmp_path)
        .play(Deviation(incidents=lambda j, r: (silent(j, r),), views=(1, 0), incidents_blob=blob))
        .audited()
    )
    assert (report.outcome, report.findings) == (AuditOutcome.PASSED, ()), readable(report)


def test_missing_incidents_document_is_remarked_and_a_damaged_one_fails(tmp_path: Path) -> None:
    run = Run.on_revm(tmp_path).play(
        Deviation(incidents=lambda j, r: (silent(j, r),), views=(1, 0))
    )
    event = run.outcome()
    report = audit(run.ledger, ChangedBlobs(run.blobs, {event.incidents: None}))
    damaged = audit(run.ledger, ChangedBlobs(run.blobs, {event.incidents: b"other"}))
    assert event.incidents != NO_DIGEST
    assert report.outcome is AuditOutcome.PASSED, readable(report)
    assert [f.kind for f in report.findings] == [INCIDENTS_MISSING]
    contradiction = contradiction_in(damaged, AuditStep.BLOBS)
    assert (contradiction.fact, contradiction.subject) == (BLOB_DAMAGED, BlobKind.INCIDENTS)


def test_an_oversized_incidents_document_changes_nothing(tmp_path: Path) -> None:
    run = Run.on_revm(tmp_path)
    large = bytes(MAX_DOCUMENT_BYTES + 1)
    run.play(Deviation(incidents_blob=lambda _data, _run: large))
    report = run.passed()
    assert [f.kind for f in report.findings] == [INCIDENTS_MISSING]


def test_only_so_many_proposals_are_judged(tmp_path: Path) -> None:
    """A document full of proposals does not keep an auditor busy."""

    def many(judged: Judgement, run: Run) -> tuple[Incident, ...]:
        found = []
        for view in range(8):
            record = replace(judged.record, scores=judged.record.scores[: view % 3])
            blob = run.blobs.put(encode_record(record) + bytes(view))
            opening = replace(judged.opening, record=blob)
            accused = run.primary(AGGREGATION, view)
            what = (run.inputs.closing.base, NO_DIGEST, aggregation_result(opening))
            vote = run.vote(VoteKind.REQUEST, AGGREGATION, view, accused, what)
            kind = IncidentKind.WRONG_PROPOSAL
            found.append(Incident(AGGREGATION, view, accused, kind, (vote,), opening))
        return tuple(found)

    run = Run.on_revm(tmp_path).play(Deviation(incidents=many, views=(8, 0)))
    report = run.passed()
    assert len(report.findings) == len(run.committee)
    assert report.counts[IGNORED_INCIDENTS] == 8 - len(run.committee)


def test_a_proposal_with_other_payloads_is_judged_by_its_own(tmp_path: Path) -> None:
    """The auditor reads what the accused's record names, not what the decision rests on."""

    def proposes(judged: Judgement, run: Run) -> Incident:
        payload = run.blobs.put(b"another payload")
        updates = (replace(judged.record.updates[0], payload=payload), *judged.record.updates[1:])
        record = replace(judged.record, updates=updates)
        opening = replace(judged.opening, record=run.blobs.put(encode_record(record)))
        return proposal(run, opening, judged.set_digest(AGGREGATION))

    _, accused, report = accused_of(tmp_path, proposes)
    assert report.outcome is AuditOutcome.PASSED, readable(report)
    [finding] = report.findings
    assert (finding.clients, finding.proven) == ((accused,), True)


def test_a_proposal_whose_payloads_are_missing_is_not_proven_wrong(tmp_path: Path) -> None:
    named: list[Digest] = []

    def proposes(judged: Judgement, run: Run) -> Incident:
        """Count a vector that only the accused's record names."""
        first = judged.record.scores[0]
        claim = run.claim(b"a vector that is lost", first.scores.member)
        named.append(claim.scores.digest)
        record = replace(judged.record, scores=(claim, *judged.record.scores[1:]))
        opening = replace(judged.opening, record=run.blobs.put(encode_record(record)))
        return proposal(run, opening, judged.set_digest(AGGREGATION))

    run = Run.on_revm(tmp_path).play(
        Deviation(incidents=lambda j, r: (proposes(j, r),), views=(1, 0))
    )
    report = audit(run.ledger, ChangedBlobs(run.blobs, {named[0]: None}))
    known = run.passed()
    assert [finding.kind for finding in report.findings] == [INCIDENTS_MISSING]
    assert [finding.proven for finding in known.findings] == [True]
