"""Runs whose distances follow the travel: what an audit makes of true, false and missing parts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ledger.audit.checks.certificates import WRONG_PROPOSAL
from ledger.audit.checks.completeness import SCORES_NOT_DUE, SILENT_MEMBER
from ledger.audit.checks.distances import (
    DISPLACEMENT_UNKNOWN,
    FALSE_SCORES,
    REFUSAL_UNCHECKED,
    SCORES_COUNTED,
)
from ledger.audit.engine import AuditOptions, audit
from ledger.audit.formatting import reason_text
from ledger.audit.report import AuditOutcome, AuditStep, StepOutcome
from ledger.audit.report_text import readable
from ledger.protocol.encoding import sha256, vector_bytes
from ledger.protocol.judgement import score_updates, usable_clients
from ledger.protocol.rules import direction
from ledger.protocol.rules.distance import plain_distances
from ledger.protocol.types import RefusalReason
from tests.audit import deviations as dev
from tests.audit.blobs import ChangedBlobs
from tests.audit.honest import wrong_proposal
from tests.audit.runs import DIMENSION, PARAMETERS, Deviation, Run, contradiction_in

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.audit.report import AuditReport
    from ledger.protocol.types import Digest
    from tests.audit.runs import Payloads, Vectors

SHORT = 2
"""A window that a run of five rounds goes beyond."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(direction, "WINDOW", SHORT)
    return Run.on_revm(tmp_path, replace(PARAMETERS, strategy=3))


def as_in_round_one(vectors: Vectors, run: Run) -> Vectors:
    """Let one member score as if there were no travel."""
    liar = min(run.participants.members)
    first = replace(run.inputs, round=1)
    vector = score_updates(first, run.evidence, usable_clients(run.inputs, run.evidence), liar)
    assert vector is not None
    return vectors | {liar: replace(vector, round=run.round)}


def zeros_score(vectors: Vectors, run: Run) -> Vectors:
    """Let the member that sent zeros publish a vector: everybody is equally far from it."""
    member, other = min(run.participants.members), next(iter(vectors.values()))
    others = tuple(sorted({*other.members, other.member} - {member}))
    mine = replace(
        other,
        member=member,
        distances=np.full(len(other.trainers), 4.0),
        members=others,
        member_distances=np.full(len(others), 4.0),
    )
    return vectors | {member: mine}


def first_sends_zeros(payloads: Payloads, run: Run) -> Payloads:
    return payloads | {min(run.participants.members): bytes(4 * DIMENSION)}


def lacking(run: Run, digest: Digest) -> ChangedBlobs:
    return ChangedBlobs(run.blobs, {digest: None})


def without(run: Run, digest: Digest) -> AuditReport:
    return audit(run.ledger, lacking(run, digest))


def test_an_honest_run_passes_whoever_computes_and_whatever_befalls_it(run: Run) -> None:
    run.play().play(Deviation(payloads=first_sends_zeros))
    run.abandon()
    run.play(Deviation(vectors=as_in_round_one)).play()
    compiled, plain = (
        audit(run.ledger, run.blobs, AuditOptions(distances=distances))
        for distances in (None, plain_distances)
    )
    assert compiled.outcome is AuditOutcome.PASSED, readable(compiled)
    assert compiled.as_dict() == plain.as_dict()
    # Who scored as if there were no travel was left out, and that is proven.
    (caught,) = [one for one in compiled.findings if one.kind == FALSE_SCORES]
    assert (caught.round, caught.proven) == (4, True)
    # Who sent zeros owes no scores, and is not told off as silent.
    (excused,) = [one for one in compiled.findings if one.kind == SCORES_NOT_DUE]
    assert (excused.round, excused.proven, len(excused.evidence)) == (2, True, 1)
    assert excused.sentence.startswith("no scores of it are due: its update, all zeros,")
    assert SILENT_MEMBER.code not in compiled.finding_counts


def test_a_counted_false_distance_along_the_displacement_is_a_contradiction(run: Run) -> None:
    run.play()
    liar = min(run.participants.members)
    run.play(Deviation(vectors=as_in_round_one, record=dev.lies_count))
    report = audit(run.ledger, run.blobs)
    assert report.outcome is AuditOutcome.FAILED
    contradiction = contradiction_in(report, AuditStep.DISTANCES)
    assert contradiction.fact == SCORES_COUNTED
    assert contradiction.round == 2
    assert contradiction.clients[0] == liar
    assert "a distance is false" in contradiction.sentence


def test_vector_of_a_member_that_sent_zeros_must_not_count(run: Run) -> None:
    run.play().play(
        Deviation(payloads=first_sends_zeros, vectors=zeros_score, record=dev.lies_count)
    )
    report = audit(run.ledger, run.blobs)
    assert report.outcome is AuditOutcome.FAILED
    contradiction = contradiction_in(report, AuditStep.DISTANCES)
    assert contradiction.fact == SCORES_COUNTED
    assert contradiction.true == reason_text(RefusalReason.NO_USABLE_UPDATE)


def test_without_one_of_two_models_distances_cannot_be_checked(run: Run) -> None:
    for _ in range(4):
        run.play()
    # Round 4 stands on the way from w_2 to w_4; without w_4 the model is computed again.
    for round_number, unknown in ((2, [4]), (4, [])):
        report = without(run, sha256(vector_bytes(run.began[round_number])))
        assert report.outcome is AuditOutcome.INCOMPLETE, readable(report)
        assert report.step(AuditStep.BLOBS).outcome is StepOutcome.NOT_CHECKABLE
        step = report.step(AuditStep.DISTANCES)
        assert [one.round for one in step.missing if one.need == DISPLACEMENT_UNKNOWN] == unknown
        expected = StepOutcome.NOT_CHECKABLE if unknown else StepOutcome.PASSED
        assert step.outcome is expected, readable(report)
        assert all("two models" in one.sentence for one in step.missing)


def test_without_the_models_a_refused_false_distance_is_unproven(run: Run) -> None:
    run.play().play(Deviation(vectors=as_in_round_one))
    assert audit(run.ledger, run.blobs).outcome is AuditOutcome.PASSED
    report = without(run, run.document.initial_model)
    assert report.outcome is AuditOutcome.INCOMPLETE, readable(report)
    (caught,) = [one for one in report.findings if one.kind == FALSE_SCORES]
    assert not caught.proven
    needs = {one.need for one in report.step(AuditStep.DISTANCES).missing}
    assert needs == {DISPLACEMENT_UNKNOWN, REFUSAL_UNCHECKED}


def test_whoever_proposed_something_else_is_accused_only_with_the_models(run: Run) -> None:
    run.play().play(Deviation(views=(1, 0), incidents=wrong_proposal))
    for blobs, proven in ((run.blobs, True), (lacking(run, run.document.initial_model), False)):
        report = audit(run.ledger, blobs)
        found = [one for one in report.findings if one.kind == WRONG_PROPOSAL]
        assert len(found) == proven, readable(report)
