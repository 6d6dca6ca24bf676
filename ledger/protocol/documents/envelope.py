"""Envelopes: the messages of clients and members, signed within their body."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ledger.protocol import canonical, training_replay
from ledger.protocol.canonical import (
    client_id,
    code,
    digest,
    fixed_bytes,
    row,
    signature,
    unsigned,
    versioned_fields,
)
from ledger.protocol.documents.record import MAX_VECTOR_BYTES, decode_preimage, preimage_fields
from ledger.protocol.encoding import ResultPreimage, sha256
from ledger.protocol.errors import EncodingError
from ledger.protocol.parameters import MAX_MEMBERS
from ledger.protocol.types import (
    Address,
    ClientId,
    Commitment,
    Digest,
    Domain,
    Phase,
    ReplayStatement,
    Scores,
    SignedCommitment,
    SignedScores,
    SignedVote,
    Vote,
    VoteKind,
)

MAX_ENVELOPE_CONTAINERS = 4 + MAX_MEMBERS  # itself, its body, a certificate, its replies


class EnvelopeKind(IntEnum):
    """Kind of an envelope's body."""

    COMMITMENT = 1
    PAYLOAD = 2
    SCORES = 3
    REQUEST = 4
    REPLY = 5
    ENVIRONMENT = 6
    ATTESTATION = 7


@dataclass(frozen=True, slots=True)
class PublishedPayload:
    """Announces a payload: its digest opens the client's commitment on the chain."""

    digest: Digest


@dataclass(frozen=True, slots=True)
class PublishedScores:
    """A signed score vector with its bytes, whose sha256 is the claim's digest."""

    signed: SignedScores
    vector: bytes


@dataclass(frozen=True, slots=True)
class PhaseCertificate:
    """The certificate of phase 1 that a request of phase 2 needs."""

    view: int
    set_digest: Digest  # S_a
    request: bytes
    replies: tuple[tuple[ClientId, bytes], ...]  # member and signature, by ascending seat


@dataclass(frozen=True, slots=True)
class Proposal:
    """A primary's request with its evidence: opening and record in phase 1, else a certificate."""

    request: SignedVote
    opening: ResultPreimage | None = None  # the preimage of its result
    record: bytes | None = None
    certificate: PhaseCertificate | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """A member's signed reply."""

    reply: SignedVote


@dataclass(frozen=True, slots=True)
class PublishedEnvironment:
    """A client's signed statement of the environment that trained its update of the round."""

    environment: training_replay.TrainingEnvironment
    signature: bytes


@dataclass(frozen=True, slots=True)
class Attestation:
    """The verdict of an auditor who has repeated the update of the envelope's round and client."""

    auditor: Address  # the address that signs; it need not be a client's
    run: Digest  # sha256 of the run document
    verdict: training_replay.ReplayVerdict
    environment: training_replay.TrainingEnvironment
    witness: Digest  # of the losses of all local steps; see `replay_witness`
    signature: bytes

    def statement(self, number: int, client: ClientId) -> ReplayStatement:
        found = (int(self.verdict), self.environment.digest, self.witness)
        return ReplayStatement(self.run, number, client, *found)


Body = (
    SignedCommitment
    | PublishedPayload
    | PublishedScores
    | Proposal
    | Reply
    | PublishedEnvironment
    | Attestation
)


@dataclass(frozen=True, slots=True)
class Envelope:
    """One message of one client in one round, or of an auditor about a client's update."""

    domain: Domain
    round: int
    client: ClientId  # the sender; in an attestation, the update's client
    body: Body

    @property
    def kind(self) -> EnvelopeKind:
        return _KINDS[type(self.body)]


_KINDS = {
    SignedCommitment: EnvelopeKind.COMMITMENT,
    PublishedPayload: EnvelopeKind.PAYLOAD,
    PublishedScores: EnvelopeKind.SCORES,
    Proposal: EnvelopeKind.REQUEST,
    Reply: EnvelopeKind.REPLY,
    PublishedEnvironment: EnvelopeKind.ENVIRONMENT,
    Attestation: EnvelopeKind.ATTESTATION,
}


def encode_envelope(envelope: Envelope) -> bytes:
    """Return the bytes of an envelope."""
    return canonical.document(
        chain_id=envelope.domain.chain_id,
        contract=envelope.domain.contract,
        round=envelope.round,
        kind=int(envelope.kind),
        client=envelope.client,
        body=_from_body(envelope.body),
    )


def decode_envelope(data: bytes, domain: Domain) -> Envelope:
    """Return the envelope in untrusted bytes; its signatures are not checked.

    An envelope names only the contract's address and chain. One of an earlier run at that address
    is decoded, and its signatures are void.
    """
    types = {"chain_id": int, "contract": bytes, "round": int, "kind": int, "client": int}
    fields = canonical.decode(data, containers=MAX_ENVELOPE_CONTAINERS, longest=MAX_MEMBERS)
    value = versioned_fields("envelope", fields, types | {"body": list})
    chain_id = unsigned("chain_id", value["chain_id"], 64)
    contract = fixed_bytes("contract", value["contract"], 20)
    if (chain_id, contract) != (domain.chain_id, domain.contract):
        raise EncodingError(f"an envelope of contract 0x{contract.hex()} on chain {chain_id}")
    number, client = unsigned("round", value["round"], 64), client_id(value["client"])
    kind = code(EnvelopeKind, "envelope of kind", value["kind"])
    return Envelope(domain, number, client, _body(kind, number, client, value["body"]))


def _from_body(body: Body) -> list[object]:
    if isinstance(body, SignedCommitment):
        return [body.commitment.commitment, body.signature]
    if isinstance(body, PublishedPayload):
        return [body.digest]
    if isinstance(body, PublishedScores):
        scores = body.signed.scores
        return [scores.base, scores.clients, body.vector, body.signed.signature]
    if isinstance(body, Reply):
        return _from_vote(body.reply)
    if isinstance(body, PublishedEnvironment):
        return [training_replay.encode_environment(body.environment), body.signature]
    if isinstance(body, Attestation):
        environment = training_replay.encode_environment(body.environment)
        found = [int(body.verdict), environment, body.witness, body.signature]
        return [body.auditor, body.run, *found]
    if body.certificate is not None:
        proof = body.certificate
        replies = [[member, signed] for member, signed in proof.replies]
        return [*_from_vote(body.request), [proof.view, proof.set_digest, proof.request, replies]]
    assert body.opening is not None, "a request of phase 1 opens its result"
    return [*_from_vote(body.request), preimage_fields(body.opening), body.record]


def _body(kind: EnvelopeKind, number: int, client: ClientId, value: list[Any]) -> Body:
    if kind is EnvelopeKind.COMMITMENT:
        word, signed = row(value, 2)
        return SignedCommitment(Commitment(number, client, digest(word)), signature(signed))
    if kind is EnvelopeKind.PAYLOAD:
        (payload,) = row(value, 1)
        return PublishedPayload(digest(payload))
    if kind is EnvelopeKind.SCORES:
        return _scores(number, client, row(value, 4))
    if kind is EnvelopeKind.REPLY:
        return Reply(_vote(VoteKind.REPLY, number, client, row(value, 6)))
    if kind is EnvelopeKind.ENVIRONMENT:
        environment, signed = row(value, 2)
        return PublishedEnvironment(_environment(environment), signature(signed))
    if kind is EnvelopeKind.ATTESTATION:
        return _attestation(row(value, 6))
    return _proposal(number, client, value)


def _environment(data: object) -> training_replay.TrainingEnvironment:
    if type(data) is not bytes:
        raise EncodingError("the environment of an envelope is not bytes")
    return training_replay.decode_environment(data)


def _attestation(value: list[Any]) -> Attestation:
    auditor, run, number, environment, witness, signed = value
    verdict = unsigned("verdict", number, 8)
    if verdict not in {training_replay.ReplayVerdict.SAME, training_replay.ReplayVerdict.OTHER}:
        raise EncodingError(f"verdict {verdict} cannot be attested: 1 same, 2 other")
    return Attestation(
        auditor=Address(fixed_bytes("auditor", auditor, 20)),
        run=digest(run),
        verdict=training_replay.ReplayVerdict(verdict),
        environment=_environment(environment),
        witness=digest(witness),
        signature=signature(signed),
    )


def _scores(number: int, client: ClientId, value: list[Any]) -> PublishedScores:
    base, clients, vector, signed = value
    if type(vector) is not bytes or len(vector) > MAX_VECTOR_BYTES:
        raise EncodingError(f"a score vector is at most {MAX_VECTOR_BYTES} bytes")
    scores = Scores(number, client, digest(base), digest(clients), sha256(vector))
    return PublishedScores(SignedScores(scores, signature(signed)), vector)


def _proposal(number: int, client: ClientId, value: list[Any]) -> Proposal:
    request = _vote(VoteKind.REQUEST, number, client, value[:6])
    if request.vote.phase is Phase.ELECTION:
        (certificate,) = row(value[6:], 1)
        return Proposal(request, certificate=_certificate(row(certificate, 4)))
    opening, record = row(value[6:], 2)
    if type(record) is not bytes:
        raise EncodingError("the record of a request is not bytes")
    return Proposal(request, decode_preimage(opening), record)


def _certificate(value: list[Any]) -> PhaseCertificate:
    view, set_of, request, replies = value
    if type(replies) is not list:
        raise EncodingError("the replies of a certificate are not a list")
    pairs = [row(reply, 2) for reply in replies]
    signed = tuple((client_id(member), signature(by)) for member, by in pairs)
    return PhaseCertificate(unsigned("view", view, 32), digest(set_of), signature(request), signed)


def _from_vote(signed: SignedVote) -> list[object]:
    vote = signed.vote
    digests = [vote.base, vote.set_digest, vote.result]
    return [int(vote.phase), vote.view, *digests, signed.signature]


def _vote(kind: VoteKind, number: int, member: ClientId, value: list[Any]) -> SignedVote:
    phase, view, base, set_of, result, signed = row(value, 6)
    where = (kind, number, code(Phase, "phase", phase), unsigned("view", view, 32))
    vote = Vote(*where, digest(base), digest(set_of), digest(result))
    return SignedVote(member, vote, signature(signed))
