"""Runs with reference `crowd` and clipped updates: crowding and norms are checked by everybody."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ledger.audit.checks.distances import FALSE_SCORES, SCORES_COUNTED
from ledger.audit.engine import AuditOptions, audit
from ledger.audit.report import AuditOutcome, AuditStep, StepOutcome
from ledger.audit.report_text import readable
from ledger.protocol.encoding import sha256, vector_bytes, word_client
from ledger.protocol.judgement import next_model, score_updates, usable_clients
from ledger.protocol.ledger_state import RoundDecided
from ledger.protocol.rules.distance import plain_distances
from ledger.protocol.scores import DistanceTable
from tests.audit import deviations as dev
from tests.audit.blobs import ChangedBlobs
from tests.audit.runs import DIMENSION, PARAMETERS, Deviation, Run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ledger.protocol.judgement import Judgement
    from tests.audit.runs import Payloads, Vectors

RULES = {
    "distance": "direction",
    "reference": "crowd",
    "scoring": "median",
    "strategy": 3,
    "threshold": "direction",
}


@pytest.fixture(params=["median", "quantile"])
def run(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Run]:
    rules = RULES | {"clip": request.param}
    found = Run.on_revm(tmp_path, replace(PARAMETERS, **rules))  # type: ignore[arg-type]
    with found.chain:
        yield found


def one_update_sent_by_four(payloads: Payloads, run: Run) -> Payloads:
    """Let all updates be at right angles or opposite, but for those of four trainers."""
    ways = np.concatenate([np.eye(DIMENSION), -np.eye(DIMENSION)]).astype(np.float32)
    apart = {client: vector_bytes(way) for client, way in zip(payloads, ways, strict=False)}
    first, *others = sorted(run.participants.trainers)[:4]
    return apart | dict.fromkeys(others, apart[first])


def without_crowding(vectors: Vectors, run: Run) -> Vectors:
    """Let one member score as if no update were crowded."""
    liar = min(run.participants.members)
    own = replace(run.inputs, parameters=replace(run.parameters, reference="travel-sum"))
    vector = score_updates(own, run.evidence, usable_clients(run.inputs, run.evidence), liar)
    assert vector is not None
    return vectors | {liar: vector}


def unclipped(judged: Judgement, run: Run) -> Judgement:
    """Aggregate the accepted updates at their full length."""
    inputs = replace(run.inputs, parameters=replace(run.parameters, clip="none"))
    updates = {c: u for c, u in run.evidence.updates.items() if u is not None}
    model = next_model(inputs, run.model, judged.ranking.accepted, updates)
    assert model.tolist() != judged.model.tolist()
    opening = replace(judged.opening, model=sha256(vector_bytes(model)))
    return replace(judged, model=model, opening=opening)


def test_an_honest_crowd_run_passes_by_plain_and_compiled_distances(run: Run) -> None:
    run.play(Deviation(payloads=one_update_sent_by_four))
    run.abandon()
    run.play()
    run.play(Deviation(payloads=one_update_sent_by_four))
    compiled, plain = (
        audit(run.ledger, run.blobs, AuditOptions(distances=distances))
        for distances in (None, plain_distances)
    )
    assert compiled.outcome is AuditOutcome.PASSED, readable(compiled)
    assert compiled.as_dict() == plain.as_dict()


def test_who_leaves_out_crowding_is_named_and_left_out(run: Run) -> None:
    run.play(Deviation(payloads=one_update_sent_by_four, vectors=without_crowding))
    report = audit(run.ledger, run.blobs)
    assert report.outcome is AuditOutcome.PASSED, readable(report)
    caught = [finding for finding in report.findings if finding.kind == FALSE_SCORES]
    assert [(finding.round, finding.proven) for finding in caught] == [(1, True)]


def test_a_counted_distance_without_crowding_is_a_contradiction(run: Run) -> None:
    liar = min(run.participants.members)
    run.play(
        Deviation(payloads=one_update_sent_by_four, vectors=without_crowding, record=dev.lies_count)
    )
    report = audit(run.ledger, run.blobs)
    contradiction = report.step(AuditStep.DISTANCES).contradiction
    assert contradiction is not None
    assert (contradiction.fact, contradiction.round) == (SCORES_COUNTED, 1)
    assert contradiction.clients[0] == liar


def test_a_model_of_unclipped_updates_is_a_contradiction(run: Run) -> None:
    run.play()
    run.play(Deviation(judgement=unclipped))
    report = audit(run.ledger, run.blobs)
    assert report.outcome is AuditOutcome.FAILED
    contradiction = report.step(AuditStep.MODEL).contradiction
    assert contradiction is not None
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
    is_checked = report.step(AuditStep.MODEL).outcome is StepOutcome.PASSED
    assert is_checked == (run.parameters.clip == "median")


def test_crowding_in_the_first_round_needs_no_displacement(run: Run) -> None:
    run.prepare(Deviation(payloads=one_update_sent_by_four))
    updates = {c: u for c, u in run.evidence.updates.items() if u is not None}
    crowded, added = (
        DistanceTable(
            replace(run.inputs, parameters=replace(run.parameters, reference=name)), updates
        )
        for name in ("crowd", "travel-sum")
    )
    member, trainer = min(run.participants.members), min(run.participants.trainers)
    assert crowded.between(trainer, member) > added.between(trainer, member)
