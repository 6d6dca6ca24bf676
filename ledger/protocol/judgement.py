"""Everything that follows from a record: distances, ranking, sets, roots and model.

A primary composes a record, the other members judge it before they reply, and the audit judges it
again, stage by stage where some of the evidence is gone:

    record -> claims      clients, opened commitments, and signatures.        `validate_claims`
           -> updates     each payload usable, or rightly left out.           `validate_updates`
           -> scores      each vector true, or rightly refused.               `validate_scores`
           -> ranking     distances to the committee, both sets.              `rank_trainers`
           -> roots       over updates and vectors, and the reveal.           `result_preimage`
           -> model       the aggregate of S_a.                               `next_model`
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ledger.protocol import encoding, validation
from ledger.protocol.documents.record import (
    MAX_VECTOR_BYTES,
    NO_CLIENT,
    Dropout,
    RefusedScores,
    RoundRecord,
    ScoreVector,
    UsableUpdate,
    encode_record,
)
from ledger.protocol.encoding import RegisteredClient
from ledger.protocol.inputs import Evidence, Inputs, RoundSizes
from ledger.protocol.parameters import Parameters, accepted_size
from ledger.protocol.rules.direction import clip_factors
from ledger.protocol.rules.distance import Distances, ServerStep, plain_distances, plain_server_step
from ledger.protocol.rules.selection import (
    SELECTIONS,
    aggregate,
    candidates,
    elect,
    mean_distances,
    rank,
)
from ledger.protocol.types import (
    AcceptanceForm,
    ClientId,
    Digest,
    DropoutReason,
    Phase,
    RefusalReason,
    SignedScores,
)


class Ranking(NamedTuple):
    """Trainers by distance, and the sets that the contract derives from that, in ranking order."""

    words: tuple[int, ...]  # distance and client of each trainer, best first
    accepted: tuple[ClientId, ...]  # S_a
    candidates: tuple[ClientId, ...]  # for the next committee

    def voted_on(self, phase: Phase) -> tuple[ClientId, ...]:
        return self.accepted if phase is Phase.AGGREGATION else self.candidates

    def elected(self, members: int, next_seed: Digest) -> tuple[ClientId, ...]:
        """Return S_c of the next round: C of the candidates, drawn by seed_{t+1}."""
        return elect(self.candidates, members, next_seed)


@dataclass(frozen=True)
class Judgement:
    """Everything that follows from a record."""

    record: RoundRecord
    ranking: Ranking
    model: NDArray[np.float32]  # w_{t+1}, shape (d,)
    opening: encoding.ResultPreimage

    @cached_property
    def result(self) -> Digest:
        """The result that both phases vote on with their sets."""
        return encoding.aggregation_result(self.opening)

    def set_digest(self, phase: Phase) -> Digest:
        return encoding.set_digest(self.ranking.voted_on(phase))


def sets_of(sizes: RoundSizes, ranking: Sequence[int]) -> Ranking:
    """Return a ranking of C words or more with S_a and the candidates, as the contract does."""
    accepted = SELECTIONS[sizes.form](ranking, accepted_size(sizes.aggregation_ppm, len(ranking)))
    by_lot = sizes.form is AcceptanceForm.BELOW_TWO
    stand = candidates(ranking, accepted, sizes.members, by_lot=by_lot)
    return Ranking(tuple(ranking), accepted, stand)


def judge(
    inputs: Inputs,
    record: RoundRecord,
    evidence: Evidence,
    distances: Distances = plain_distances,
    step: ServerStep = plain_server_step,
) -> tuple[Judgement | None, tuple[validation.Violation, ...]]:
    """Return what follows from a record, or None and every violation in it."""
    violations = [
        *validation.validate_claims(inputs, record),
        *validation.validate_updates(record, evidence),
    ]
    if violations:
        return None, tuple(violations)
    if inputs.needs_displacement and evidence.displacement is None:
        return None, (validation.Violation(validation.ViolationCode.MODEL_UNKNOWN),)
    updates = evidence.usable(record.clients)
    table = validation.DistanceTable(inputs, updates, distances, evidence.displacement)
    violations = validation.validate_scores(inputs, record, evidence, table)
    if violations:
        return None, tuple(violations)
    if evidence.model is None:
        return None, (validation.Violation(validation.ViolationCode.MODEL_UNKNOWN),)
    ranking = rank_trainers(inputs.parameters, counted_vectors(record, evidence))
    model = next_model(inputs, evidence.model, ranking.accepted, updates, step)
    if not np.isfinite(model).all():
        return None, (validation.Violation(validation.ViolationCode.MODEL_NOT_FINITE),)
    opening = result_preimage(record, ranking, encoding.sha256(encoding.vector_view(model)))
    return Judgement(record, ranking, model, opening), ()


def compose_record(
    inputs: Inputs,
    evidence: Evidence,
    claims: Iterable[SignedScores],
    distances: Distances = plain_distances,
) -> RoundRecord:
    """Return a primary's record from the vectors it holds; those for other sets are skipped."""
    updates = tuple(
        UsableUpdate(client, evidence.payloads[client].digest)
        for client in usable_clients(inputs, evidence)
    )
    clients = tuple(update.client for update in updates)
    left_out = sorted(set(inputs.participants.active).difference(clients))
    dropouts = tuple(_dropout(inputs, evidence, client) for client in left_out)
    base, clients_digest = inputs.closing.base, encoding.set_digest(clients)
    usable_claims = {
        (signed.scores.member, signed.scores.digest): signed
        for signed in claims
        if (signed.scores.round, signed.scores.base, signed.scores.clients)
        == (inputs.round, base, clients_digest)
        and signed.scores.digest in evidence.vectors
        and len(evidence.vectors[signed.scores.digest]) <= MAX_VECTOR_BYTES
        and not validation.validate_score_claim(inputs, signed)
    }
    table = validation.DistanceTable(
        inputs, evidence.usable(clients), distances, evidence.displacement
    )
    by_member: dict[ClientId, list[SignedScores]] = {}
    for key in sorted(usable_claims):
        by_member.setdefault(key[0], []).append(usable_claims[key])
    scores: list[SignedScores] = []
    refused: list[RefusedScores] = []
    for signed_by in by_member.values():
        if len(signed_by) > 1:
            refused += [RefusedScores(s, RefusalReason.TWO_VECTORS) for s in signed_by[:2]]
            continue
        (signed,) = signed_by
        vector = validation.parse_vector(evidence.vectors[signed.scores.digest])
        fault = validation.find_score_fault(
            inputs, clients, signed.scores, vector, table, validation.PRIMARY_MARGINS
        )
        if fault is None:
            scores.append(signed)
        else:
            named = fault.client if fault.client is not None else NO_CLIENT
            refused.append(RefusedScores(signed, fault.reason, named))
    return RoundRecord(inputs.round, base, updates, dropouts, tuple(scores), tuple(refused))


def score_updates(
    inputs: Inputs, table: validation.DistanceTable, clients: Sequence[ClientId], member: ClientId
) -> ScoreVector | None:
    """Return a member's score vector for a set of updates (Algorithm 1, lines 1-4), if any."""
    if not table.can_score(member):
        return None
    trainers, others = validation.scored_clients(inputs, clients, member)
    return ScoreVector(
        round=inputs.round,
        member=member,
        base=inputs.closing.base,
        trainers=trainers,
        distances=table.row(member, trainers),
        members=others,
        member_distances=table.row(member, others),
    )


def usable_clients(inputs: Inputs, evidence: Evidence) -> tuple[ClientId, ...]:
    """Return the active clients whose usable update one holds, ascending."""
    committed = inputs.closing.commitments
    active = (client for client in inputs.participants.active if client in committed)
    return tuple(evidence.usable(active))


def counted_vectors(record: RoundRecord, evidence: Evidence) -> list[ScoreVector]:
    """Return the vectors that a record counts, ascending by member, as far as one holds them."""
    vectors = []
    for signed in record.scores:
        vector = validation.parse_vector(evidence.vectors.get(signed.scores.digest, b""))
        if vector is not None:
            vectors.append(vector)
    return vectors


def rank_trainers(parameters: Parameters, vectors: Sequence[ScoreVector]) -> Ranking:
    """Return the ranking and both sets (Algorithm 1, line 6) from the vectors that count."""
    combined = mean_distances(np.array([vector.distances for vector in vectors]))
    return sets_of(parameters, rank(zip(vectors[0].trainers, combined.tolist(), strict=True)))


def next_model(
    inputs: Inputs,
    model: NDArray[np.float32],
    accepted: Sequence[ClientId],
    updates: Mapping[ClientId, NDArray[np.float32]],
    step: ServerStep = plain_server_step,
) -> NDArray[np.float32]:
    """Return w_{t+1}, shape (d,), the aggregate of the accepted updates.

    Strategy 3 shortens long updates by the lengths of all of the record's set, and all weigh the
    same. Strategies 1 and 2 weigh by samples, and need the updates of S_a alone.
    """
    chosen = {client: updates[client] for client in accepted}
    rate = inputs.parameters.server_rate
    weights = weights_of(inputs.parameters.form, inputs.registry, accepted)
    factors = clip_factors(chosen, updates) if inputs.parameters.compares_directions else None
    return aggregate(model, chosen, weights, rate, factors, step)


def weights_of(
    form: AcceptanceForm, registry: Sequence[RegisteredClient], accepted: Sequence[ClientId]
) -> dict[ClientId, int]:
    """Return n_k of each accepted client, or 1 for strategy 3, which trusts no claimed number."""
    if form is AcceptanceForm.BELOW_TWO:
        return dict.fromkeys(accepted, 1)
    return {client: registry[client].samples for client in accepted}


def result_preimage(
    record: RoundRecord, ranking: Ranking, model: Digest
) -> encoding.ResultPreimage:
    """Return the preimage of the result, given the digest of the model that follows."""
    payloads = record.payloads()
    ranked = [encoding.word_client(word) for word in ranking.words]
    return encoding.ResultPreimage(
        model=model,
        updates_root=encoding.merkle_root(
            encoding.UPDATE_LEAF, update_leaves(ranking.words, ranking.accepted, payloads)
        ),
        scores_root=encoding.merkle_root(encoding.SCORES_LEAF, score_leaves(record)),
        ranking_digest=encoding.ranking_digest(ranking.words),
        reveal=encoding.reveal_of(payloads, ranked),
        record=encoding.sha256(encode_record(record)),
    )


def update_leaves(
    ranking: Sequence[int], accepted: Sequence[ClientId], payloads: Mapping[ClientId, Digest]
) -> list[encoding.Leaf]:
    """Return (client, payload, rank, distance bits, accepted) of each ranked trainer, by rank."""
    chosen = set(accepted)
    clients = [encoding.word_client(word) for word in ranking]
    return [
        (client, payloads[client], place, word >> 32, client in chosen)
        for place, (word, client) in enumerate(zip(ranking, clients, strict=True))
    ]


def score_leaves(record: RoundRecord) -> list[encoding.Leaf]:
    """Return the leaves of the scores root: (member, digest of its vector that counts)."""
    return [(signed.scores.member, signed.scores.digest) for signed in record.scores]


def _dropout(inputs: Inputs, evidence: Evidence, client: ClientId) -> Dropout:
    if client not in inputs.closing.commitments:
        return Dropout(client, DropoutReason.NO_COMMITMENT)
    payload = evidence.payloads.get(client)
    if payload is None:
        return Dropout(client, DropoutReason.PAYLOAD_MISSING)
    return Dropout(client, DropoutReason.PAYLOAD_MALFORMED, payload.digest)
