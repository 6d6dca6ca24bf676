"""Runs of strategy 3: every verifier checks crowding, clipping and weights."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ledger.audit.checks.distances import FALSE_SCORES, SCORES_COUNTED
from ledger.audit.engine import audit
from ledger.audit.report import AuditOutcome, AuditStep, StepOutcome
from ledger.audit.report_text import readable
from ledger.protocol.encoding import sha256, vector_bytes, word_client
from ledger.protocol.ledger_state import RoundDecided
from ledger.protocol.rules.aggregation import aggregate
from ledger.protocol.rules.clipping import clip_factors
from tests.audit import deviations as dev
from tests.audit.blobs import ChangedBlobs
from tests.audit.runs import DIMENSION, PARAMETERS, Deviation, Run, contradiction_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from ledger.protocol.judgement import Judgement
    from ledger.protocol.types import ClientId
    from tests.audit.runs import Payloads, Vectors


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
    """Aggregate the accepted updates at their full length."""
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
