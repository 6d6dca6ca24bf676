"""A run with everything that may befall an honest one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from ledger.protocol.documents.record import Incident
from ledger.protocol.encoding import aggregation_result, sha256
from ledger.protocol.judgement import Judgement
from ledger.protocol.parameters import Parameters
from ledger.protocol.types import IncidentKind, Phase, SignedScores, VoteKind
from tests.audit.runs import DIMENSION, PARAMETERS, Deviation, Payloads, Run, Vectors


def honest_run(
    folder: Path, opened: Callable[[Path, Parameters], Run] = Run.opened, **settings: object
) -> Run:
    """Play five rounds: liars, dropouts, strays, late ones, bans, an abandonment, failed views."""
    run = opened(folder, replace(PARAMETERS, **settings))  # type: ignore[arg-type]
    run.play(Deviation(payloads=two_fail, vectors=one_lies))
    _second_round(run)
    run.ban(run.committee[0])
    run.commit({client: run.word(client) for client in run.trainers[:2]})
    run.abandon()
    _fourth_round(run)
    run.play()
    return run


def _second_round(run: Run) -> None:
    """Two clients commit that are not active: one in time, one after the closing block."""
    stray, late = run.bystanders[:2]
    views = Deviation(strays=(stray,), views=(1, 0), incidents=wrong_proposal)
    record = run.prepare(views)
    run.commit({late: run.word(late)})
    run.conclude(record, views)


def _fourth_round(run: Run) -> None:
    """One payload is withheld, one member signs twice, and a client is banned as it is elected."""
    deviation = Deviation(
        withheld=lambda run: run.trainers[-1:],
        claims=two_vectors,
        views=(0, run.first_view(2) + 1),
        incidents=silent_primary,
    )
    record = run.prepare(deviation)
    run.ban(run.judge(record).ranking.candidates[0])
    run.conclude(record, deviation)


def two_fail(payloads: Payloads, run: Run) -> Payloads:
    """Let one trainer send a number that is none, and another nothing at all."""
    failing = {run.trainers[0]: np.full(DIMENSION, np.nan, dtype="<f4").tobytes()}
    return {c: failing.get(c, p) for c, p in payloads.items() if c != run.trainers[1]}


def one_lies(vectors: Vectors, run: Run) -> Vectors:
    liar = run.committee[1]
    return vectors | {liar: replace(vectors[liar], distances=2 * vectors[liar].distances)}


def two_vectors(claims: list[SignedScores], run: Run) -> list[SignedScores]:
    """Let the first member sign another vector for the same updates, nearly the same."""
    other = run.scored(claims[0])
    nearly = replace(other, distances=other.distances * (1 + 1e-12))
    return [*claims, run.claim(nearly, claims[0].scores.member)]


def wrong_proposal(judged: Judgement, run: Run) -> tuple[Incident, ...]:
    """Let the primary of view 0 request another model than the record gives."""
    phase, primary = Phase.AGGREGATION, run.primary(Phase.AGGREGATION, 0)
    opening = replace(judged.opening, model=sha256(b"another model"))
    what = (run.inputs.closing.base, judged.set_digest(phase), aggregation_result(opening))
    request = run.vote(VoteKind.REQUEST, phase, 0, primary, what)
    return (Incident(phase, 0, primary, IncidentKind.WRONG_PROPOSAL, (request,), opening),)


def silent_primary(_judged: Judgement, run: Run) -> tuple[Incident, ...]:
    primary = run.primary(Phase.ELECTION, 0)
    return (Incident(Phase.ELECTION, 0, primary, IncidentKind.SILENT),)
