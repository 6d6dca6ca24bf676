"""An actor's steps in a round, and the actions that a driver carries out.

`member.py` decides when; in tests, a schedule in the paper's line order does. A step that the
journal does not allow, or that lacks an input, returns no action.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ledger.actors.journal import ProtectedSigner, VoteJournal
from ledger.actors.settlement import JudgementCache, judgement_behind
from ledger.actors.view import RoundView
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
from ledger.protocol.documents.record import RoundRecord, encode_record
from ledger.protocol.documents.vector import encode_vector
from ledger.protocol.encoding import set_digest, sha256
from ledger.protocol.judgement import Judgement
from ledger.protocol.ledger_state import (
    EquivocationReport,
    LedgerStage,
    QuorumCertificate,
    SubmittedCertificate,
    SubmittedDecision,
)
from ledger.protocol.parameters import Parameters
from ledger.protocol.payloads import Payload
from ledger.protocol.types import (
    ClientId,
    Digest,
    Domain,
    Phase,
    Scores,
    SignedCommitment,
    SignedScores,
    Vote,
    VoteKind,
)
from ledger.protocol.validation import Violation, ViolationCode, validate_omissions
from ledger.storage.blobs import BlobStore
from ledger.storage.mailbox import Mailbox


@dataclass(frozen=True, slots=True)
class StoreBlobs:
    """Store blobs: durable before others can see anything that follows.

    Documents are the round's record, vectors, incidents and model. A machine need not keep the
    payloads.
    """

    documents: tuple[Payload, ...] = ()
    payloads: Mapping[ClientId, Payload] = field(default_factory=dict)

    @property
    def blobs(self) -> dict[Digest, Payload]:
        return {blob.digest: blob for blob in (*self.payloads.values(), *self.documents)}


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
    """Chain, stores and journal of a run.

    Attributes:
        finality_blocks: depth at which a block is final; None for the chain's own finality.
    """

    parameters: Parameters
    domain: Domain
    ledger: RoundLedger
    blobs: BlobStore
    mailbox: Mailbox
    journal: VoteJournal
    finality_blocks: int | None = 0

    def is_open(self, round_number: int) -> bool:
        state = self.ledger.state()
        return state.stage is LedgerStage.OPEN and state.round == round_number


@dataclass(frozen=True, slots=True)
class Holdings:
    """A member's holdings at one time: clients with a payload, and signed vectors."""

    payloads: frozenset[ClientId] = frozenset()
    claims: tuple[SignedScores, ...] = ()


class ProtocolSteps:
    """The protocol steps of one member."""

    def __init__(self, signer: ProtectedSigner, judge: JudgementCache) -> None:
        self._signer = signer
        self._judge = judge

    def publish_scores(self, view: RoundView, clients: tuple[ClientId, ...]) -> list[Action]:
        """Return the signed vector for a set of usable updates (Algorithm 1, lines 1-5)."""
        digest, me = set_digest(clients), self._signer.client
        if any(signed.scores.member == me for signed in view.claims_for(digest)):
            return []
        vector = self._judge.score(view, clients, me)
        if vector is None:
            return []
        inputs, data = view.inputs, encode_vector(vector)
        scores = Scores(inputs.round, me, inputs.closing.base, digest, sha256(data))
        signed = self._signer.scores(inputs.domain, scores)
        return [] if signed is None else [self._post(view, PublishedScores(signed, data))]

    def publish_payloads(self, view: RoundView, clients: Iterable[ClientId]) -> list[Action]:
        """Return what each of these clients has published: not everybody may have it."""
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
        record = self._judge.compose(alone, view.claims_for(set_digest(clients)))
        data = encode_record(record)
        judgement, _ = self._judge.judge(view, data)
        if judgement is None:  # nothing follows from what is held: the view passes
            return []
        vote = self._vote(view, VoteKind.REQUEST, Phase.AGGREGATION, number, judgement)
        signed = self._signer.vote(view.inputs.domain, vote)
        if signed is None:
            return []
        body = Proposal(signed, opening=judgement.opening, record=data)
        return [_stored(view, record, data), self._post(view, body)]

    def answer(self, view: RoundView, proposal: Proposal, in_time: Holdings) -> list[Action]:
        """Return the reply to a request of phase 1, or what its record lacks (lines 9-13).

        A record may not lack anything that was held when the request's view began.
        """
        if proposal.record is None:
            return []
        judgement, _ = self._judge.judge(view, proposal.record)
        if judgement is None:
            return []
        omissions = validate_omissions(judgement.record, in_time.payloads, in_time.claims)
        if omissions:
            return self._repeat(view, in_time, omissions)
        reply = self._reply(view, proposal.request.vote, judgement)
        return [_stored(view, judgement.record, proposal.record), *reply] if reply else []

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
        reply = self._reply(view, request, judgement)
        # Not everybody who replies here has replied, and stored, in phase 1.
        stored = _stored(view, judgement.record, encode_record(judgement.record))
        return [stored, *reply] if reply else []

    def _reply(self, view: RoundView, asked: Vote, judgement: Judgement) -> list[Action]:
        vote = self._vote(view, VoteKind.REPLY, asked.phase, asked.view, judgement)
        if vote != replace(asked, kind=VoteKind.REPLY):
            return []
        signed = self._signer.vote(view.inputs.domain, vote)
        return [] if signed is None else [self._post(view, Reply(signed))]

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


def _stored(view: RoundView, record: RoundRecord, data: bytes) -> StoreBlobs:
    """Return what a vote rests on: its record, payloads and vectors."""
    evidence = view.evidence
    digests = dict.fromkeys(signed.scores.digest for signed in record.claims_with_vectors)
    vectors = (Payload(evidence.vectors[d], d) for d in digests if d in evidence.vectors)
    payloads = {client: evidence.payloads[client] for client in record.clients}
    for dropout in record.dropouts:
        if dropout.payload is not None and dropout.client in evidence.payloads:
            payloads[dropout.client] = evidence.payloads[dropout.client]
    return StoreBlobs((Payload.of(data), *vectors), payloads)
