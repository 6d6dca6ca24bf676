"""The proof of what became of one client in one round: all that a stranger needs to check it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from ledger.audit.proofs.statement import (
    ClientStatement,
    ClientVerdict,
    CutOff,
    ProvenRole,
    Rank,
    ScoresTaken,
    UpdateWeight,
)
from ledger.protocol import encoding
from ledger.protocol.documents.record import RoundRecord, decode_record
from ledger.protocol.documents.run import RunDocument, decode_run
from ledger.protocol.encoding import word_client
from ledger.protocol.fold import BanLink, EndLink, Link, registry_with_bans
from ledger.protocol.inputs import Participants, participants_of
from ledger.protocol.judgement import sets_of, weights_of
from ledger.protocol.ledger_state import ClientBanned, Deployment, deployment_of, domain_of
from ledger.protocol.types import (
    NO_DIGEST,
    AcceptanceForm,
    Address,
    ClientId,
    Digest,
    Domain,
    RefusalReason,
    RegisteredClient,
)


@dataclass(frozen=True)
class HeadPath:
    """The way from one head to a later one.

    Attributes:
        start: the first head; the configuration's digest where the path begins with the run.
        links: what was added, oldest first.
    """

    start: Digest
    links: tuple[Link, ...]

    @cached_property
    def heads(self) -> tuple[Digest, ...]:
        """Every head on the way: the first one, and the one after each link."""
        heads = [self.start]
        for link in self.links:
            heads.append(link.head_after(heads[-1]))
        return tuple(heads)

    def end_of(self, round_number: int) -> int | None:
        """Return the place of the link that ended a round; None if there is none."""
        for place, link in enumerate(self.links):
            if not isinstance(link, BanLink) and link.round == round_number:
                return place
        return None

    def ended(self, round_number: int) -> EndLink | None:
        """Return the link that ended a round; None if there is none."""
        place = self.end_of(round_number)
        link = None if place is None else self.links[place]
        return None if isinstance(link, BanLink) else link

    def before_end_of(self, round_number: int) -> HeadPath:
        """Return the way up to where a round ends: a head after it says nothing of what follows."""
        return HeadPath(self.start, self.links[: self.end_of(round_number)])

    def bans(self) -> tuple[BanLink, ...]:
        """Return the bans on the way, oldest first."""
        return tuple(link for link in self.links if isinstance(link, BanLink))


_ENDED_WITHOUT = {
    ProvenRole.NOT_SAMPLED: ClientVerdict.NOT_SAMPLED,
    ProvenRole.BANNED: ClientVerdict.BANNED,
}
MAX_PROOF_BYTES = 64 << 20
"""Of a document whose path is a hundred thousand rounds long."""


@dataclass(frozen=True, slots=True)
class EventLocation:
    """The location of an event on a chain; `log_index` counts from 0 within the block."""

    block_number: int
    block_hash: bytes
    transaction_hash: bytes
    log_index: int


@dataclass(frozen=True, slots=True)
class CommittedDecision:
    """The parts of a decision that its head commits to.

    Attributes:
        model: digest of w_{t+1}.
        reveal: digest of the ranked trainers' payload digests.
        incidents: digest of the incidents document, 32 zero bytes without one.
        next_seed: seed_{t+1}, which draws the next committee; None if there are C candidates.
    """

    ranking: tuple[int, ...]
    model: Digest
    updates_root: Digest
    scores_root: Digest
    reveal: Digest
    record: Digest
    views: tuple[int, int]
    signers: tuple[int, int]
    incidents: Digest
    next_seed: Digest | None

    def result(self) -> Digest:
        """Return what the committee voted on besides the sets."""
        opening = encoding.ResultPreimage(
            self.model,
            self.updates_root,
            self.scores_root,
            encoding.ranking_digest(self.ranking),
            self.reveal,
            self.record,
        )
        return encoding.aggregation_result(opening)


@dataclass(frozen=True, slots=True)
class RecordedBan:
    """A ban that was recorded before the round opened."""

    round: int
    client: ClientId


@dataclass(frozen=True, slots=True)
class RecordedCommitment:
    """A commitment that the contract took."""

    client: ClientId
    commitment: Digest


@dataclass(frozen=True)
class RoundBasis:
    """The basis of a round: the run, the heads before and after it, and its participants.

    Attributes:
        chain_id: EIP-155.
        deployed_after: hash of the block before the one that deployed it, which is part of the
            domain's salt; zeros with `beacon = none`.
        configuration: the run document's bytes.
        path: heads from before the round to after it, from the configuration on if it is whole.
        committee: S_c, by places.
        bans: those recorded before the round opened, in the chain's order.
    """

    chain_id: int
    contract: Address
    deployment_parent_hash: Digest
    genesis_hash: bytes
    round: int
    configuration: bytes
    path: HeadPath
    seed: Digest
    committee: tuple[ClientId, ...]
    bans: tuple[RecordedBan, ...]

    @cached_property
    def domain(self) -> Domain:
        """Signature domain: the contract on its chain, in this run."""
        return domain_of(self.deployment, self.chain_id, self.contract, self.deployment_parent_hash)

    @cached_property
    def config(self) -> Digest:
        return encoding.sha256(self.configuration)

    @property
    def document(self) -> RunDocument:
        return _document(self.configuration)

    @property
    def deployment(self) -> Deployment:
        """Deployment that the configuration demands."""
        return _deployment(self.configuration)

    @cached_property
    def registry(self) -> tuple[RegisteredClient, ...]:
        """All clients, with the bans that were recorded before the round opened."""
        bans = (ClientBanned(ban.round, ban.client, NO_DIGEST) for ban in self.bans)
        return registry_with_bans(self.document.registry, bans)

    @cached_property
    def participants(self) -> Participants:
        """Participants of the round, from seed, committee and bans."""
        sizes = self.deployment
        return participants_of(sizes, self.registry, self.round, self.seed, self.committee)

    @property
    def is_whole(self) -> bool:
        """Say whether the path begins with the run, so that no earlier ban can be hidden."""
        return self.path.start == self.config

    @property
    def path_to_end(self) -> HeadPath:
        """The path up to where the round ends: a head after it says nothing of what follows."""
        return self.path.before_end_of(self.round)


@dataclass(frozen=True)
class ClientProof(RoundBasis):
    """A statement about one client in one round, with all that it follows from.

    Attributes:
        commitments: all that were taken in the round, in the chain's order.
        decision: what was decided; None if nothing was.
        record: bytes of the round's record; None where it is not needed, or not to be had.
        payload: digest of the client's payload; None where none is known.
        siblings: the Merkle proof of its update in the updates root; None if it is not ranked.
        signature: the client's own, of its commitment; None if it has none, or it cannot be read.
        committed_at: where the chain holds its commitment; None without one.
        ended_at: where the chain holds decision or abandonment; None while open.
    """

    client: ClientId
    commitments: tuple[RecordedCommitment, ...]
    decision: CommittedDecision | None
    record: bytes | None
    payload: Digest | None
    siblings: tuple[Digest, ...] | None
    signature: bytes | None
    committed_at: EventLocation | None
    ended_at: EventLocation | None
    statement: ClientStatement

    @cached_property
    def sets(self) -> tuple[tuple[ClientId, ...], tuple[ClientId, ...]]:
        """S_a and the next committee, as they follow from the ranking; empty without one."""
        decision, sizes = self.decision, self.deployment
        if decision is None:
            return (), ()
        derived = sets_of(sizes, decision.ranking)
        return derived.accepted, derived.elected(sizes.members, decision.next_seed or NO_DIGEST)

    @cached_property
    def recorded(self) -> RoundRecord | None:
        """The round's record, if its bytes are here."""
        return None if self.record is None else decode_record(self.record)

    @cached_property
    def commitment(self) -> Digest | None:
        """Commitment of the client; None if the contract took none."""
        own = (one.commitment for one in self.commitments if one.client == self.client)
        return next(own, None)


def derive_statement(proof: ClientProof) -> ClientStatement:
    """Return what became of the client, as it follows from all but the claimed statement.

    Args:
        proof: everything; whether it is true is not asked here.
    """
    role, has_committed = _role(proof), proof.commitment is not None
    record, dropout = proof.recorded, None
    if proof.decision is None:
        verdict = (
            ClientVerdict.OPEN if proof.path.ended(proof.round) is None else ClientVerdict.ABANDONED
        )
        return ClientStatement(verdict, role, has_committed)
    if role in _ENDED_WITHOUT:
        return ClientStatement(_ENDED_WITHOUT[role], role, has_committed)
    if record is not None:
        reasons = {entry.client: entry.reason for entry in record.dropouts}
        dropout = reasons.get(proof.client)
    if role is ProvenRole.MEMBER:
        scores, refusal = _scores(proof, record)
        return ClientStatement(
            ClientVerdict.MEMBER,
            role,
            has_committed,
            dropout=dropout,
            scores=scores,
            refusal=refusal,
        )
    rank = _rank(proof)
    if rank is None:
        return ClientStatement(ClientVerdict.DROPPED_OUT, role, has_committed, dropout=dropout)
    cut_off = _cut_off(proof)
    if not rank.accepted:
        return ClientStatement(ClientVerdict.NOT_USED, role, has_committed, rank, cut_off)
    return ClientStatement(ClientVerdict.USED, role, has_committed, rank, cut_off, _weight(proof))


def _role(proof: ClientProof) -> ProvenRole:
    if proof.client in proof.committee:
        return ProvenRole.MEMBER
    if proof.registry[proof.client].is_banned_in(proof.round):
        return ProvenRole.BANNED
    return (
        ProvenRole.TRAINER
        if proof.client in proof.participants.trainers
        else ProvenRole.NOT_SAMPLED
    )


def _rank(proof: ClientProof) -> Rank | None:
    ranking = () if proof.decision is None else proof.decision.ranking
    accepted = proof.client in proof.sets[0]
    for place, word in enumerate(ranking):
        if word_client(word) == proof.client:
            return Rank(place, len(ranking), word >> 32, accepted)
    return None


def _cut_off(proof: ClientProof) -> CutOff | None:
    if proof.decision is None:
        return None
    accepted, form = proof.sets[0], proof.deployment.form
    bits = {word_client(word): word >> 32 for word in proof.decision.ranking}
    edge = accepted[0 if form is AcceptanceForm.LAST else -1]
    return CutOff(form, len(accepted), bits[edge])


def _weight(proof: ClientProof) -> UpdateWeight:
    document = proof.document
    weights = weights_of(document.parameters.form, document.registry, proof.sets[0])
    is_clipped = document.parameters.compares_directions
    return UpdateWeight(weights[proof.client], sum(weights.values()), is_clipped)


def _scores(
    proof: ClientProof, record: RoundRecord | None
) -> tuple[ScoresTaken, RefusalReason | None]:
    """Return what became of a member's scores, as the record has it."""
    if proof.client in proof.participants.banned:
        return ScoresTaken.EMPTY_SEAT, None
    if record is None:
        return ScoresTaken.UNKNOWN, None
    if any(signed.scores.member == proof.client for signed in record.scores):
        return ScoresTaken.COUNTED, None
    refused = (item for item in record.refused if item.signed.scores.member == proof.client)
    entry = next(refused, None)
    if entry is not None:
        return ScoresTaken.REFUSED, entry.reason
    return ScoresTaken.NONE, None


@lru_cache(maxsize=8)
def _document(configuration: bytes) -> RunDocument:
    # Whoever checks many proofs of a run reads its configuration once.
    return decode_run(configuration)


@lru_cache(maxsize=8)
def _deployment(configuration: bytes) -> Deployment:
    document = _document(configuration)
    config = encoding.sha256(configuration)
    parameters, model = document.parameters, document.initial_model
    return deployment_of(parameters, config, document.registry, model)[0]
