"""The judgements of a member, each computed once, and the end of a round that follows from them.

In one process all members share a judge, which is the same as each computing from the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import is_

import numpy as np
from numpy.typing import NDArray

from ledger.actors.view import RoundView
from ledger.protocol.documents.envelope import Proposal
from ledger.protocol.documents.record import (
    Incident,
    Incidents,
    RoundRecord,
    ScoreVector,
    decode_record,
    encode_incidents,
)
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import EncodingError
from ledger.protocol.inputs import Inputs
from ledger.protocol.judgement import Judgement, compose_record, judge, score_updates
from ledger.protocol.ledger_state import (
    QuorumCertificate,
    SubmittedCertificate,
    SubmittedDecision,
    submitted_certificate,
)
from ledger.protocol.rules.distance import DistanceRule, Distances, Travel, Updates, plain_distances
from ledger.protocol.types import (
    NO_DIGEST,
    ClientId,
    Digest,
    IncidentKind,
    Phase,
    SignedScores,
    SignedVote,
)
from ledger.protocol.validation import Violation, ViolationCode


@dataclass(frozen=True, slots=True)
class Settlement:
    """A round's outcome as its committee certified it."""

    judgement: Judgement
    certificates: tuple[QuorumCertificate, QuorumCertificate]


def settlement_of(view: RoundView, judge: JudgementCache) -> Settlement | None:
    """Return the outcome that both phases have certified, None while there is none."""
    for election in view.certificates(Phase.ELECTION):
        for aggregation in view.certificates(Phase.AGGREGATION):
            judgement = judgement_behind(view, judge, aggregation.vote.result)
            if (
                judgement is not None
                and election.vote.result == aggregation.vote.result
                and election.vote.set_digest == judgement.set_digest(Phase.ELECTION)
                and aggregation.vote.set_digest == judgement.set_digest(Phase.AGGREGATION)
            ):
                return Settlement(judgement, (aggregation, election))
    return None


def judgement_behind(view: RoundView, judge: JudgementCache, result: Digest) -> Judgement | None:
    """Return the judgement that leads to a result, None if no record that one sees does."""
    for proposal in proposals_of(view, Phase.AGGREGATION):
        if proposal.request.vote.result == result and proposal.record is not None:
            judgement, _ = judge.judge(view, proposal.record)
            if judgement is not None and judgement.result == result:
                return judgement
    return None


def proposals_of(view: RoundView, phase: Phase) -> list[Proposal]:
    """Return the proposals of a phase, lowest view first."""
    keys = sorted(key for key in view.proposals if key[0] is phase)
    return [proposal for key in keys for proposal in view.proposals[key]]


def decision_of(
    view: RoundView, settlement: Settlement, incidents: Digest
) -> tuple[SubmittedDecision, tuple[SubmittedCertificate, SubmittedCertificate]]:
    """Return what the contract is sent; `incidents` is 32 zero bytes without a document."""
    judgement, inputs = settlement.judgement, view.inputs
    committee = inputs.participants.committee
    decision = SubmittedDecision.of(
        judgement.opening, committee, judgement.ranking.words, inputs.closing.base, incidents
    )
    first, second = (submitted_certificate(c, committee) for c in settlement.certificates)
    return decision, (first, second)


def incidents_of(
    view: RoundView, judge: JudgementCache, settlement: Settlement
) -> tuple[Digest, bytes | None]:
    """Return the incidents document of a round and its digest, zero and None without incidents."""
    # One incident for each member, phase and view with two different votes.
    equivocations: dict[tuple[int, int, int], Incident] = {}
    for (member, slot), votes in view.votes.items():
        if len(votes) == 2:
            pair = tuple(sorted(votes, key=lambda signed: signed.vote.result))
            incident = Incident(slot.phase, slot.view, member, IncidentKind.EQUIVOCATION, pair)
            equivocations.setdefault(incident.key[:3], incident)
    incidents = [*equivocations.values(), *_failed_views(view, judge, settlement)]
    if not incidents:
        return NO_DIGEST, None
    ordered = tuple(sorted(incidents, key=lambda incident: incident.key))
    data = encode_incidents(Incidents(view.inputs.round, view.inputs.closing.base, ordered))
    return sha256(data), data


def _failed_views(view: RoundView, judge: JudgementCache, settlement: Settlement) -> list[Incident]:
    banned = view.inputs.participants.banned
    incidents = []
    for certificate in settlement.certificates:
        phase = certificate.vote.phase
        for number in range(certificate.vote.view):
            primary = view.primary(phase, number)
            requests = view.requests(phase, number)
            if primary in banned or len(requests) == 2:  # no view at all; reported as equivocation
                continue
            if not requests:
                incidents.append(Incident(phase, number, primary, IncidentKind.SILENT))
            else:
                incidents.append(_failed(view, judge, settlement, requests[0]))
    return incidents


def _failed(
    view: RoundView, judge: JudgementCache, settlement: Settlement, request: SignedVote
) -> Incident:
    """Return the incident of a single undecided request; an accusation needs a judgement."""
    vote = request.vote
    proposals = view.proposals.get((vote.phase, vote.view), ())
    where = (vote.phase, vote.view, request.member)
    opening = None
    if vote.phase is Phase.ELECTION:
        judgement: Judgement | None = settlement.judgement
        if vote.result == settlement.judgement.result:
            opening = settlement.judgement.opening
    else:
        judgement = None
        for proposal in proposals:
            judgement, violations = judge.judge(view, proposal.record or b"")
            if judgement is not None or is_certain(violations):
                opening = proposal.opening
    is_right = judgement is not None and (vote.set_digest, vote.result) == (
        judgement.set_digest(vote.phase),
        judgement.result,
    )
    if is_right or opening is None:
        return Incident(*where, IncidentKind.NO_QUORUM)
    return Incident(*where, IncidentKind.WRONG_PROPOSAL, (request,), opening)


Judged = tuple["Judgement | None", tuple[Violation, ...]]

_NOT_FINAL = {
    ViolationCode.UPDATE_MISSING,
    ViolationCode.VECTOR_MISSING,
    ViolationCode.MODEL_UNKNOWN,
}
"""Doubts that what arrives later may clear up."""


def is_certain(violations: Iterable[Violation]) -> bool:
    """Return whether one of these violations is final, whatever arrives later."""
    return any(doubt.code not in _NOT_FINAL for doubt in violations)


class JudgementCache:
    """Judges records of the newest round that it was asked about."""

    def __init__(self, distances: Distances = plain_distances) -> None:
        self._distances = distances
        self._asked: tuple[object, ...] = ()
        self._arrays: list[NDArray[np.float32] | None] = []
        self._matrix: NDArray[np.float64] | None = None
        self._inputs: Inputs | None = None
        self._about: tuple[NDArray[np.float32] | None, ...] = (None, None)
        self._judged: dict[Digest, Judged] = {}

    def judge(self, view: RoundView, record: bytes) -> Judged:
        """Return what follows from a record's bytes, or the doubts about it."""
        self._turn_to(view)
        digest = sha256(record)
        if digest in self._judged:
            return self._judged[digest]
        try:
            read = decode_record(record)
        except EncodingError:
            result: Judged = (None, (Violation(ViolationCode.OTHER_ROUND_OR_BASE),))
        else:
            result = judge(view.inputs, read, view.evidence, self._distances_of)
        if _NOT_FINAL.isdisjoint(doubt.code for doubt in result[1]):
            self._judged[digest] = result
        return result

    def compose(self, view: RoundView, claims: Sequence[SignedScores]) -> RoundRecord:
        return compose_record(view.inputs, view.evidence, claims, self._distances_of)

    def score(
        self, view: RoundView, clients: Sequence[ClientId], member: ClientId
    ) -> ScoreVector | None:
        return score_updates(view.inputs, view.evidence, clients, member, self._distances_of)

    def _turn_to(self, view: RoundView) -> None:
        # Not the base alone: a reorganisation can leave it, and change committee, seed or model.
        inputs, vectors = view.inputs, (view.evidence.model, view.evidence.displacement)
        if inputs != self._inputs or not all(map(is_, vectors, self._about)):
            self._inputs, self._about, self._judged = inputs, vectors, {}

    def _distances_of(
        self, rule: DistanceRule, travel: Travel, updates: Updates, members: Sequence[ClientId]
    ) -> NDArray[np.float64]:
        """Return distances; those of the last set of updates are computed once."""
        clients = sorted(updates)
        request = (rule.name, tuple(clients), tuple(members))
        arrays = [travel, *(updates[client] for client in clients)]
        same = request == self._asked and all(map(is_, arrays, self._arrays))
        if not same or self._matrix is None:
            self._matrix = self._distances(rule, travel, updates, members)
            self._asked, self._arrays = request, arrays
        return self._matrix
