"""Runs of strategy 3: every verifier checks crowding, clipping and weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ledger.audit.checks.rounds import (
    DISPLACEMENT_UNKNOWN,
    FALSE_SCORES,
    REFUSAL_UNCHECKED,
    SCORES_COUNTED,
    SCORES_NOT_DUE,
    SILENT_MEMBER,
    WRONG_PROPOSAL,
)
from ledger.audit.engine import AuditOptions, audit
from ledger.audit.report import AuditOutcome, AuditReport, AuditStep, StepOutcome, reason_text
from ledger.audit.report_text import readable
from ledger.protocol.encoding import sha256, vector_bytes, word_client
from ledger.protocol.judgement import Judgement, usable_clients
from ledger.protocol.ledger_state import RoundDecided
from ledger.protocol.rules import direction
from ledger.protocol.rules.direction import clip_factors
from ledger.protocol.rules.distance import plain_distances
from ledger.protocol.rules.selection import aggregate
from ledger.protocol.types import ClientId, Digest, RefusalReason
from tests.audit import deviations as dev
from tests.audit.blobs import ChangedBlobs
from tests.audit.honest import wrong_proposal
from tests.audit.runs import (
    DIMENSION,
    PARAMETERS,
    Deviation,
    Payloads,
    Run,
    Vectors,
    contradiction_in,
)
from tests.support.rounds import scores_by


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.on_revm(tmp_path, replace(PARAMETERS, strategy=3))


def one_update_sent_by_four(payloads: Payloads, run: Run) -> Payloads:
    """Let all updates be at right angles or opposite, but for those of four trainers."""
    ways = np.concatenate([np.eye(DIMENSION), -np.eye(DIMENSION)]).astype(np.float32)
    apart = {client: vector_bytes(way) for client, way in zip(payloads, ways, strict=False)}
    first, *others = sorted(run.participants.trainers)[:4]
    return apart | dict.fromkeys(others, apart[first])


def without_crowding(vectors: Vectors, run: Run) -> Vectors:
    """Let one member score as if the four updates were not crowded."""
    liar = min(run.participants.members)
    vector = vectors[liar]
    return vectors | {liar: replace(vector, distances=np.minimum(vector.distances, 2.0))}


def unclipped(judged: Judgement, run: Run) -> Judgement:
    return with_model(judged, run, dict.fromkeys(judged.ranking.accepted, 1))


def by_samples(judged: Judgement, run: Run) -> Judgement:
    """Aggregate the clipped updates by their owners' numbers of samples."""
    accepted, updates = judged.ranking.accepted, usable(run)
    factors = clip_factors({client: updates[client] for client in accepted}, updates)
    samples = {client: run.registry[client].samples for client in accepted}
    assert len(set(samples.values())) > 1
    return with_model(judged, run, samples, factors)


def usable(run: Run) -> dict[ClientId, NDArray[np.float32]]:
    return {c: update for c, update in run.evidence.updates.items() if update is not None}


def with_model(
    judged: Judgement,
    run: Run,
    weights: dict[ClientId, int],
    factors: dict[ClientId, float] | None = None,
) -> Judgement:
    chosen = {client: usable(run)[client] for client in judged.ranking.accepted}
    model = aggregate(run.model, chosen, weights, run.parameters.server_rate, factors)
    assert model.tolist() != judged.model.tolist()
    opening = replace(judged.opening, model=sha256(vector_bytes(model)))
    return replace(judged, model=model, opening=opening)


def test_who_leaves_out_crowding_is_named_and_left_out(run: Run) -> None:
    run.play(Deviation(payloads=one_update_sent_by_four, vectors=without_crowding))
    report = run.passed()
    caught = [finding for finding in report.findings if finding.kind == FALSE_SCORES]
    assert [(finding.round, finding.proven) for finding in caught] == [(1, True)]


def test_a_counted_distance_without_crowding_is_a_contradiction(run: Run) -> None:
    liar = min(run.participants.members)
    run.play(
        Deviation(payloads=one_update_sent_by_four, vectors=without_crowding, record=dev.lies_count)
    )
    report = audit(run.ledger, run.blobs)
    contradiction = contradiction_in(report, AuditStep.DISTANCES)
    assert (contradiction.fact, contradiction.round) == (SCORES_COUNTED, 1)
    assert contradiction.clients[0] == liar


@pytest.mark.parametrize("departure", [unclipped, by_samples])
def test_a_model_of_other_weights_is_a_contradiction(
    run: Run, departure: Callable[[Judgement, Run], Judgement]
) -> None:
    run.play().play(Deviation(judgement=departure))
    report = audit(run.ledger, run.blobs)
    assert report.outcome is AuditOutcome.FAILED
    contradiction = contradiction_in(report, AuditStep.MODEL)
    assert contradiction.round == 2


def test_without_one_update_no_crowding_can_be_checked(run: Run) -> None:
    run.play()
    payload = next(iter(run.evidence.payloads.values()))
    report = audit(run.ledger, ChangedBlobs(run.blobs, {payload.digest: None}))
    assert report.outcome is AuditOutcome.INCOMPLETE, readable(report)
    assert report.step(AuditStep.DISTANCES).outcome is StepOutcome.NOT_CHECKABLE


def test_a_model_that_rests_on_all_updates_is_not_checkable_without_one(run: Run) -> None:
    run.play(Deviation(payloads=one_update_sent_by_four))
    events = [found.event for found in run.ledger.outcomes(limit=9)]
    (event,) = (event for event in events if isinstance(event, RoundDecided))
    lost = min(set(map(word_client, event.ranking)) - set(event.accepted))
    payload = run.evidence.payloads[lost]
    report = audit(run.ledger, ChangedBlobs(run.blobs, {payload.digest: None}))
    assert report.step(AuditStep.MODEL).outcome is StepOutcome.NOT_CHECKABLE


# Runs whose distances follow the travel: what an audit makes of true, false and missing parts.


SHORT = 2  # a window that a travelled of five rounds goes beyond


@pytest.fixture
def travelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(direction, "WINDOW", SHORT)
    return Run.on_revm(tmp_path, replace(PARAMETERS, strategy=3))


def as_in_round_one(vectors: Vectors, travelled: Run) -> Vectors:
    """Let one member score as if there were no travel."""
    liar = min(travelled.participants.members)
    first = replace(travelled.inputs, round=1)
    vector = scores_by(
        first, travelled.evidence, usable_clients(travelled.inputs, travelled.evidence), liar
    )
    assert vector is not None
    return vectors | {liar: replace(vector, round=travelled.round)}


def zeros_score(vectors: Vectors, travelled: Run) -> Vectors:
    """Let the member that sent zeros publish a vector: everybody is equally far from it."""
    member, other = min(travelled.participants.members), next(iter(vectors.values()))
    others = tuple(sorted({*other.members, other.member} - {member}))
    mine = replace(
        other,
        member=member,
        distances=np.full(len(other.trainers), 4.0),
        members=others,
        member_distances=np.full(len(others), 4.0),
    )
    return vectors | {member: mine}


def first_sends_zeros(payloads: Payloads, travelled: Run) -> Payloads:
    return payloads | {min(travelled.participants.members): bytes(4 * DIMENSION)}


def lacking(travelled: Run, digest: Digest) -> ChangedBlobs:
    return ChangedBlobs(travelled.blobs, {digest: None})


def without(travelled: Run, digest: Digest) -> AuditReport:
    return audit(travelled.ledger, lacking(travelled, digest))


def test_an_honest_run_passes_whoever_computes_and_whatever_befalls_it(travelled: Run) -> None:
    travelled.play().play(Deviation(payloads=first_sends_zeros))
    travelled.abandon()
    travelled.play(Deviation(vectors=as_in_round_one)).play()
    compiled, plain = (
        audit(travelled.ledger, travelled.blobs, AuditOptions(distances=distances))
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
    assert excused.sentence.startswith("no scores of it are expected: its update is all zeros,")
    assert SILENT_MEMBER.code not in compiled.finding_counts


def test_a_counted_false_distance_along_the_displacement_is_a_contradiction(travelled: Run) -> None:
    travelled.play()
    liar = min(travelled.participants.members)
    travelled.play(Deviation(vectors=as_in_round_one, record=dev.lies_count))
    report = audit(travelled.ledger, travelled.blobs)
    assert report.outcome is AuditOutcome.FAILED
    contradiction = contradiction_in(report, AuditStep.DISTANCES)
    assert contradiction.fact == SCORES_COUNTED
    assert contradiction.round == 2
    assert contradiction.clients[0] == liar
    assert "a distance is false" in contradiction.sentence


def test_vector_of_a_member_that_sent_zeros_must_not_count(travelled: Run) -> None:
    travelled.play().play(
        Deviation(payloads=first_sends_zeros, vectors=zeros_score, record=dev.lies_count)
    )
    report = audit(travelled.ledger, travelled.blobs)
    assert report.outcome is AuditOutcome.FAILED
    contradiction = contradiction_in(report, AuditStep.DISTANCES)
    assert contradiction.fact == SCORES_COUNTED
    assert contradiction.true == reason_text(RefusalReason.NO_USABLE_UPDATE)


def test_without_one_of_two_models_distances_cannot_be_checked(travelled: Run) -> None:
    for _ in range(4):
        travelled.play()
    # Round 4 stands on the way from w_2 to w_4; without w_4 the model is computed again.
    for round_number, unknown in ((2, [4]), (4, [])):
        report = without(travelled, sha256(vector_bytes(travelled.began[round_number])))
        assert report.outcome is AuditOutcome.INCOMPLETE, readable(report)
        assert report.step(AuditStep.BLOBS).outcome is StepOutcome.NOT_CHECKABLE
        step = report.step(AuditStep.DISTANCES)
        assert [one.round for one in step.missing if one.need == DISPLACEMENT_UNKNOWN] == unknown
        expected = StepOutcome.NOT_CHECKABLE if unknown else StepOutcome.PASSED
        assert step.outcome is expected, readable(report)
        assert all("two models" in one.sentence for one in step.missing)


def test_without_the_models_a_refused_false_distance_is_unproven(travelled: Run) -> None:
    travelled.play().play(Deviation(vectors=as_in_round_one))
    assert audit(travelled.ledger, travelled.blobs).outcome is AuditOutcome.PASSED
    report = without(travelled, travelled.document.initial_model)
    assert report.outcome is AuditOutcome.INCOMPLETE, readable(report)
    (caught,) = [one for one in report.findings if one.kind == FALSE_SCORES]
    assert not caught.proven
    needs = {one.need for one in report.step(AuditStep.DISTANCES).missing}
    assert needs == {DISPLACEMENT_UNKNOWN, REFUSAL_UNCHECKED}


def test_whoever_proposed_something_else_is_accused_only_with_the_models(travelled: Run) -> None:
    travelled.play().play(Deviation(views=(1, 0), incidents=wrong_proposal))
    for blobs, proven in (
        (travelled.blobs, True),
        (lacking(travelled, travelled.document.initial_model), False),
    ):
        report = audit(travelled.ledger, blobs)
        found = [one for one in report.findings if one.kind == WRONG_PROPOSAL]
        assert len(found) == proven, readable(report)
