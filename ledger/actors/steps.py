"""A member's judgements, its steps in a round, and the actions that a driver carries out.

`participants.py` decides when; in tests, a schedule in the paper's line order does. A step that the
journal does not allow, or that lacks an input, returns no action. Each judgement is computed once:
in one process all members share a judge, which is the same as each computing from the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import is_
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ledger.actors.journal import ProtectedSigner, VoteJournal
from ledger.actors.view import Holdings, RoundView
from ledger.chain.round_ledger import RoundLedger
from ledger.protocol.documents.envelope import (
    Body,
    Envelope,
    PhaseCertificate,
    Proposal,
    PublishedPayload,
    PublishedScores,
    Reply,
)
from ledger.protocol.documents.record import (
    Incident,
    Incidents,
    RoundRecord,
    ScoreVector,
    decode_record,
    encode_incidents,
    encode_record,
    encode_vector,
)
from ledger.protocol.encoding import set_digest, sha256
from ledger.protocol.errors import EncodingError
from ledger.protocol.inputs import Evidence, Inputs
from ledger.protocol.judgement import Judgement, compose_record, judge, score_updates
from ledger.protocol.ledger_state import (
    EquivocationReport,
    LedgerStage,
    QuorumCertificate,
    SubmittedCertificate,
    SubmittedDecision,
    submitted_certificate,
)
from ledger.protocol.parameters import Parameters
from ledger.protocol.payloads import Payload
from ledger.protocol.rules.distance import (
    DistanceRule,
    Distances,
    ServerStep,
    Travel,
    Updates,
    plain_distances,
    plain_server_step,
)
from ledger.protocol.types import (
    NO_DIGEST,
    ClientId,
    Digest,
    Domain,
    IncidentKind,
    Phase,
    Scores,
    SignedCommitment,
    SignedVote,
    Vote,
    VoteKind,
)
from ledger.protocol.validation import DistanceTable, Violation, ViolationCode, validate_omissions
from ledger.storage.blobs import BlobStore
from ledger.storage.mailbox import Mailbox


@dataclass(frozen=True, slots=True)
class StoreBlobs:
    """Store documents, and payloads that are kept: durable before others see what follows."""

    documents: tuple[Payload, ...] = ()
    payloads: Mapping[ClientId, Payload] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PostEnvelope:
    """Send an envelope to all clients."""

    envelope: Envelope


@dataclass(frozen=True, slots=True)
class SendCommitment:
    """Send a commitment to the contract; a driver may put many into one transaction."""

    signed: SignedCommitment


@dataclass(frozen=True, slots=True)
class SendReport:
    """Send a proof of equivocation to the contract."""

    report: EquivocationReport


@dataclass(frozen=True, slots=True)
class SendDecision:
    """Send a round's decision to the contract."""

    round: int
    decision: SubmittedDecision
    certificates: tuple[SubmittedCertificate, SubmittedCertificate]


Transaction = SendCommitment | SendReport | SendDecision

Action = StoreBlobs | PostEnvelope | Transaction


@dataclass(frozen=True, slots=True)
class ActorContext:
    """Chain, stores and journal of a run."""

    parameters: Parameters
    domain: Domain
    ledger: RoundLedger
    blobs: BlobStore
    mailbox: Mailbox
    journal: VoteJournal
    finality_blocks: int | None = 0  # the depth of a final block; None for the chain's finality

    def is_open(self, round_number: int) -> bool:
        state = self.ledger.state()
        return state.stage is LedgerStage.OPEN and state.round == round_number


class ProtocolSteps:
    """The protocol steps of one member."""

    def __init__(self, signer: ProtectedSigner, judge: JudgementCache) -> None:
        self._signer = signer
        self._judge = judge

    def publish_scores(self, view: RoundView, clients: tuple[ClientId, ...]) -> list[Action]:
        """Return the signed vector for a set of usable updates (Algorithm 1, lines 1-5)."""
        digest, me = set_digest(clients), self._signer.client
        if (me, digest) in view.claims:
            return []
        vector = self._judge.score(view, clients, me)
        if vector is None:
            return []
        inputs, data = view.inputs, encode_vector(vector)
        scores = Scores(inputs.round, me, inputs.closing.base, digest, sha256(data))
        signed = self._signer.scores(inputs.domain, scores)
        return [] if signed is None else [self._post(view, PublishedScores(signed, data))]

    def publish_payloads(self, view: RoundView, clients: Iterable[ClientId]) -> list[Action]:
        """Return the published updates of these clients, which other members may lack."""
        actions: list[Action] = []
        for client in clients:
            payload = view.evidence.payloads[client]
            actions.append(StoreBlobs(payloads={client: payload}))
            actions.append(self._post(view, PublishedPayload(payload.digest), client))
        return actions

    def propose(self, view: RoundView, number: int, clients: tuple[ClientId, ...]) -> list[Action]:
        """Return the request of phase 1 as primary (Algorithm 2, lines 3-7)."""
        evidence = view.evidence
        others = evidence.usable(evidence.updates).keys() - set(clients)
        alone = replace(view, evidence=evidence.without(others)) if others else view
        claims = view.claims_for(set_digest(clients))
        record = compose_record(alone.inputs, alone.evidence, claims, self._judge.distances_of)
        data = encode_record(record)
        judgement, _ = self._judge.judge(view, data)
        if judgement is None:  # nothing follows from what is held: the view passes
            return []
        vote = self._vote(view, VoteKind.REQUEST, Phase.AGGREGATION, number, judgement)
        signed = self._signer.vote(view.inputs.domain, vote)
        if signed is None:
            return []
        body = Proposal(signed, opening=judgement.opening, record=data)
        return [self._judge.stored(view.evidence, record), self._post(view, body)]

    def answer(self, view: RoundView, proposal: Proposal, in_time: Holdings) -> list[Action]:
        """Return the reply to a request of phase 1, or what it lacks of `in_time` (lines 9-13)."""
        if proposal.record is None:
            return []
        judgement, _ = self._judge.judge(view, proposal.record)
        if judgement is None:
            return []
        omissions = self._judge.omissions(judgement.record, in_time.payloads, in_time.claims)
        if omissions:
            return self._repeat(view, in_time, omissions)
        return self._reply(view, proposal.request.vote, judgement)

    def propose_election(
        self, view: RoundView, number: int, certificate: QuorumCertificate
    ) -> list[Action]:
        """Return the request of phase 2 as primary, which rests on a certificate of phase 1."""
        judgement = judgement_behind(view, self._judge, certificate.vote.result)
        if judgement is None:
            return []
        vote = self._vote(view, VoteKind.REQUEST, Phase.ELECTION, number, judgement)
        signed = self._signer.vote(view.inputs.domain, vote)
        if signed is None:
            return []
        rests_on = PhaseCertificate(
            certificate.vote.view,
            certificate.vote.set_digest,
            certificate.request.signature,
            tuple((reply.member, reply.signature) for reply in certificate.replies),
        )
        return [self._post(view, Proposal(signed, certificate=rests_on))]

    def answer_election(self, view: RoundView, proposal: Proposal) -> list[Action]:
        """Return the reply to a request of phase 2, whose certificate of phase 1 is in the view."""
        request = proposal.request.vote
        results = {certificate.vote.result for certificate in view.certificates(Phase.AGGREGATION)}
        judgement = judgement_behind(view, self._judge, request.result)
        if request.result not in results or judgement is None:
            return []
        # Not everybody who replies here has replied, and stored, in phase 1.
        return self._reply(view, request, judgement)

    def _reply(self, view: RoundView, asked: Vote, judgement: Judgement) -> list[Action]:
        vote = self._vote(view, VoteKind.REPLY, asked.phase, asked.view, judgement)
        if vote != replace(asked, kind=VoteKind.REPLY):
            return []
        signed = self._signer.vote(view.inputs.domain, vote)
        if signed is None:
            return []
        stored = self._judge.stored(view.evidence, judgement.record)
        return [stored, self._post(view, Reply(signed))]

    def _repeat(self, view: RoundView, held: Holdings, omissions: list[Violation]) -> list[Action]:
        """Return what the primary seems not to have: vectors and payloads, as they were sent."""
        actions: list[Action] = []
        for doubt in omissions:
            (client,) = doubt.clients
            if doubt.code is ViolationCode.PAYLOAD_HELD:
                actions += self.publish_payloads(view, [client])
                continue
            actions += [
                self._post(view, PublishedScores(claim, view.evidence.vectors[digest]), client)
                for claim in held.claims
                if claim.scores.member == client
                and (digest := claim.scores.digest) in view.evidence.vectors
            ]
        return actions

    def _vote(
        self, view: RoundView, kind: VoteKind, phase: Phase, number: int, judgement: Judgement
    ) -> Vote:
        inputs = view.inputs
        decided = (judgement.set_digest(phase), judgement.result)
        return Vote(kind, inputs.round, phase, number, inputs.closing.base, *decided)

    def _post(self, view: RoundView, body: Body, client: ClientId | None = None) -> PostEnvelope:
        sender = self._signer.client if client is None else client
        return PostEnvelope(Envelope(view.inputs.domain, view.inputs.round, sender, body))


def _stored(evidence: Evidence, record: RoundRecord) -> StoreBlobs:
    """Return what a vote rests on: its record, payloads and vectors."""
    digests = dict.fromkeys(signed.scores.digest for signed in record.claims_with_vectors)
    vectors = (Payload(evidence.vectors[d], d) for d in digests if d in evidence.vectors)
    payloads = {client: evidence.payloads[client] for client in record.clients}
    for dropout in record.dropouts:
        if dropout.payload is not None and dropout.client in evidence.payloads:
            payloads[dropout.client] = evidence.payloads[dropout.client]
    return StoreBlobs((Payload.of(encode_record(record)), *vectors), payloads)


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
    """Return the incident of an undecided request; an unjudged record may be right."""
    vote = request.vote
    where = (vote.phase, vote.view, request.member)
    opening = None
    if vote.phase is Phase.ELECTION:
        judgement: Judgement | None = settlement.judgement
        if vote.result == settlement.judgement.result:
            opening = settlement.judgement.opening
    else:
        judgement = None
        for proposal in view.proposals.get((vote.phase, vote.view), ()):
            judgement, violations = judge.judge(view, proposal.record or b"")
            if judgement is not None or is_certain(violations):
                opening = proposal.opening
    decided = judgement and (judgement.set_digest(vote.phase), judgement.result)
    if opening is None or decided == (vote.set_digest, vote.result):
        return Incident(*where, IncidentKind.NO_QUORUM)
    return Incident(*where, IncidentKind.WRONG_PROPOSAL, (request,), opening)


T = TypeVar("T")
Judged = tuple["Judgement | None", tuple[Violation, ...]]

_NOT_FINAL = {  # doubts that what arrives later may clear up
    ViolationCode.UPDATE_MISSING,
    ViolationCode.VECTOR_MISSING,
    ViolationCode.MODEL_UNKNOWN,
}


def is_certain(violations: Iterable[Violation]) -> bool:
    """Return whether one of these violations is final, whatever arrives later."""
    return any(doubt.code not in _NOT_FINAL for doubt in violations)


class _Newest(Generic[T]):
    """A function that remembers its newest result, for the very same arguments."""

    def __init__(self, compute: Callable[..., T]) -> None:
        self._compute = compute
        self._known: tuple[tuple[object, ...], T] | None = None

    def __call__(self, *arguments: object) -> T:
        if self._known is None or not all(map(is_, arguments, self._known[0])):
            self._known = arguments, self._compute(*arguments)
        return self._known[1]


class JudgementCache:
    """Judges records of the newest round; members share equal computations."""

    def __init__(
        self, distances: Distances = plain_distances, step: ServerStep = plain_server_step
    ) -> None:
        self._distances, self._step = distances, step
        self._table = _Newest(self._table_of)
        self.stored = _Newest(_stored)
        self.omissions = _Newest(validate_omissions)
        self._asked: tuple[object, ...] = ()
        self._arrays: list[NDArray[np.float32] | None] = []
        self._matrix: NDArray[np.float64] | None = None
        self._inputs: Inputs | None = None
        self._about: tuple[NDArray[np.float32] | None, ...] = (None, None)
        # By the record's bytes; with the evidence that it rests on, None where it is final.
        self._judged: dict[bytes, tuple[Evidence | None, Judged]] = {}

    def judge(self, view: RoundView, record: bytes) -> Judged:
        # Not the base alone: a reorganisation can leave it, and change committee, seed or model.
        inputs, vectors = view.inputs, (view.evidence.model, view.evidence.displacement)
        if inputs != self._inputs or not all(map(is_, vectors, self._about)):
            self._inputs, self._about, self._judged = inputs, vectors, {}
        if record in self._judged:
            evidence, result = self._judged[record]
            if evidence is None or evidence is view.evidence:
                return result
        try:
            read = decode_record(record)
        except EncodingError:
            result = (None, (Violation(ViolationCode.OTHER_ROUND_OR_BASE),))
        else:
            result = judge(view.inputs, read, view.evidence, self.distances_of, self._step)
        is_final = _NOT_FINAL.isdisjoint(doubt.code for doubt in result[1])
        self._judged[record] = None if is_final else view.evidence, result
        return result

    def score(
        self, view: RoundView, clients: Sequence[ClientId], member: ClientId
    ) -> ScoreVector | None:
        table = self._table(view.inputs, view.evidence, clients)
        return score_updates(view.inputs, table, clients, member)

    def _table_of(
        self, inputs: Inputs, evidence: Evidence, clients: Sequence[ClientId]
    ) -> DistanceTable:
        updates = evidence.usable(clients)
        return DistanceTable(inputs, updates, self.distances_of, evidence.displacement)

    def distances_of(
        self, rule: DistanceRule, travel: Travel, updates: Updates, members: Sequence[ClientId]
    ) -> NDArray[np.float64]:
        """Return distances; the distances of the last set of updates are computed once."""
        clients = sorted(updates)
        request = (rule.name, tuple(clients), tuple(members))
        arrays = [travel, *(updates[client] for client in clients)]
        same = request == self._asked and all(map(is_, arrays, self._arrays))
        if not same or self._matrix is None:
            self._matrix = self._distances(rule, travel, updates, members)
            self._asked, self._arrays = request, arrays
        return self._matrix
