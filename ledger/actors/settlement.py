"""The end of a round: its two certificates, what the contract is sent, and what went wrong."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.actors.judgement_cache import JudgementCache, is_certain
from ledger.actors.view import RoundView
from ledger.protocol.consensus import QuorumCertificate
from ledger.protocol.documents.envelope import Proposal
from ledger.protocol.documents.vector import Incident, Incidents, encode_incidents
from ledger.protocol.encoding import sha256
from ledger.protocol.judgement import Judgement
from ledger.protocol.ledger_state import (
    SubmittedCertificate,
    SubmittedDecision,
    submitted_certificate,
)
from ledger.protocol.types import NO_DIGEST, Digest, IncidentKind, Phase, SignedVote


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
    """Return what the contract is sent.

    Args:
        incidents: digest of the incidents document, 32 zero bytes without one.
    """
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
    incidents = [*_equivocations(view), *_failed_views(view, judge, settlement)]
    if not incidents:
        return NO_DIGEST, None
    ordered = tuple(sorted(incidents, key=lambda incident: incident.key))
    data = encode_incidents(Incidents(view.inputs.round, view.inputs.closing.base, ordered))
    return sha256(data), data


def _equivocations(view: RoundView) -> list[Incident]:
    """Return one incident for each member, phase and view with two different votes."""
    incidents: dict[tuple[int, int, int], Incident] = {}
    for (member, slot), votes in view.votes.items():
        if len(votes) == 2:
            pair = tuple(sorted(votes, key=lambda signed: signed.vote.result))
            incident = Incident(slot.phase, slot.view, member, IncidentKind.EQUIVOCATION, pair)
            incidents.setdefault(incident.key[:3], incident)
    return list(incidents.values())


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
    """Return what became of a single request that was not decided.

    An accusation needs a judgement: a record that cannot be judged here may be right.
    """
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
