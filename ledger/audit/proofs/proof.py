"""The proof of one client's part in one round, and its statement."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from ledger.audit.report import reason_text
from ledger.chain.ports import Block, Log, Transaction
from ledger.protocol import encoding, ledger_state
from ledger.protocol.documents.record import RoundRecord, decode_record
from ledger.protocol.documents.run import RunDocument, decode_run
from ledger.protocol.errors import EncodingError
from ledger.protocol.inputs import Participants, needs_displacement, participants_of
from ledger.protocol.judgement import sets_of, weights_of
from ledger.protocol.rules.direction import RIGHT_ANGLE, window_start
from ledger.protocol.types import (
    NO_DIGEST,
    AcceptanceForm,
    Address,
    ClientId,
    Digest,
    Domain,
    DropoutReason,
    RefusalReason,
)


class ProvenRole(StrEnum):
    """The role of a client in a round, from seed, registry and bans."""

    TRAINER = "trainer"
    MEMBER = "member"
    NOT_SAMPLED = "not sampled"
    BANNED = "banned"


class ClientVerdict(StrEnum):
    """The verdict on a client in a round."""

    USED = "used"
    NOT_USED = "not used"
    DROPPED_OUT = "dropped out"
    MEMBER = "member"
    NOT_SAMPLED = "not sampled"
    BANNED = "banned"
    ABANDONED = "abandoned"
    OPEN = "open"


class ScoresTaken(StrEnum):
    """The fate of a member's scores, from the record."""

    COUNTED = "counted"
    REFUSED = "refused"
    NONE = "none"
    EMPTY_SEAT = "empty seat"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Rank:
    """A trainer's place in the ranking; its distance to the committee as float64 bits."""

    place: int
    ranked: int
    distance_bits: int
    accepted: bool


@dataclass(frozen=True, slots=True)
class CutOff:
    """The end of the accepted set."""

    form: AcceptanceForm  # how S_a follows from the ranking
    accepted: int
    edge_bits: int  # float64 bits of the accepted distance that is next to the others


@dataclass(frozen=True, slots=True)
class UpdateWeight:
    """The exact share of an update: n_k of Σ n_k over S_a; strategy 3 counts updates instead."""

    samples: int
    total: int


@dataclass(frozen=True, slots=True)
class ClientStatement:
    """The statement about one client in one round."""

    verdict: ClientVerdict
    role: ProvenRole
    has_committed: bool  # whether the contract took a commitment of it
    rank: Rank | None = None  # its place, with `cut_off`; None if it was not ranked
    cut_off: CutOff | None = None
    weight: UpdateWeight | None = None  # its share; None if its update was not used
    dropout: DropoutReason | None = None  # as the record has it; None if none, or without it
    scores: ScoresTaken | None = None  # None unless it was a member of a decided round
    refusal: RefusalReason | None = None  # None unless its scores were refused


_ROLES: dict[ProvenRole, str] = {
    ProvenRole.TRAINER: "was sampled to train",
    ProvenRole.MEMBER: "was a member of the committee",
    ProvenRole.NOT_SAMPLED: "was not sampled",
    ProvenRole.BANNED: "was banned when the round opened",
}

_SCORES: dict[ScoresTaken, str] = {
    ScoresTaken.COUNTED: "its scores counted",
    ScoresTaken.REFUSED: "its scores were refused: {reason}",
    ScoresTaken.NONE: "the record has no scores of this member",
    ScoresTaken.EMPTY_SEAT: "its seat was empty, because it was banned before the round opened",
    ScoresTaken.UNKNOWN: "the outcome of its scores is unknown without the record",
}


def stated(round_number: int, client: ClientId, statement: ClientStatement) -> str:
    """Return what became of a client, in words; ranks count from 1."""
    who, at = f"client {client}", f"in round {round_number}"
    match statement.verdict:
        case ClientVerdict.USED | ClientVerdict.NOT_USED:
            return f"{at} the update of {who} {_ranked(statement)}."
        case ClientVerdict.DROPPED_OUT:
            reason = reason_text(statement.dropout) or "the reason is unknown without the record"
            return f"{at} {who} was sampled to train and dropped out: {reason}."
        case ClientVerdict.MEMBER:
            scores = _SCORES[statement.scores or ScoresTaken.UNKNOWN].format(
                reason=reason_text(statement.refusal)
            )
            out = f"; it has no usable update: {reason_text(statement.dropout)}"
            dropped = out if statement.dropout is not None else ""
            member = "was a member of the committee, so its update was not ranked"
            return f"{at} {who} {member}; {scores}{dropped}."
        case ClientVerdict.NOT_SAMPLED:
            return f"{at} {who} was not sampled: neither trainer nor member."
        case ClientVerdict.BANNED:
            return f"{at} {who} took no part: it was banned before the round opened."
        case ClientVerdict.ABANDONED:
            return f"{at} no decision was made, no update used; {who} {_ROLES[statement.role]}."
        case ClientVerdict.OPEN:
            has = "has committed" if statement.has_committed else "has not committed"
            return f"round {round_number} is open; {who} {_ROLES[statement.role]}, and {has}."


def _ranked(statement: ClientStatement) -> str:
    rank, cut_off, weight = statement.rank, statement.cut_off, statement.weight
    if rank is None or cut_off is None:
        return "was ranked"
    place = f"ranked {rank.place + 1} of {rank.ranked}, distance {_number(rank.distance_bits)}"
    limit = _limit(cut_off)
    if weight is None:
        return f"was not used: {place}; {limit}"
    share = f"with weight {weight.samples}/{weight.total} = {weight.samples / weight.total:.6g}"
    if cut_off.form is AcceptanceForm.BELOW_TWO:
        share = f"{share}, clipped if it was longer than two fifths of the round's updates"
    return f"was used {share}: {place}; {limit}"


def _limit(cut_off: CutOff) -> str:
    edge = _number(cut_off.edge_bits)
    match cut_off.form:
        case AcceptanceForm.FIRST:
            return f"the first {cut_off.accepted} were accepted, up to distance {edge}"
        case AcceptanceForm.LAST:
            return f"the last {cut_off.accepted} were accepted, from distance {edge} on"
        case AcceptanceForm.BELOW_TWO if encoding.float_from_bits(cut_off.edge_bits) >= RIGHT_ANGLE:
            return f"no distance is below 2, so the first {cut_off.accepted} were accepted"
        case AcceptanceForm.BELOW_TWO:
            return f"the {cut_off.accepted} at a distance below 2 were accepted"


def _number(bits: int) -> str:
    return f"{encoding.float_from_bits(bits):.6g}"


@dataclass(frozen=True)
class HeadPath:
    """The links from one head to a later one, oldest first."""

    start: Digest  # the first head; the configuration's digest where the path begins with the run
    links: tuple[ledger_state.Link, ...]

    @cached_property
    def heads(self) -> tuple[Digest, ...]:
        heads = [self.start]
        for link in self.links:
            heads.append(link.head_after(heads[-1]))
        return tuple(heads)

    def end_of(self, round_number: int) -> int | None:
        for place, link in enumerate(self.links):
            if not isinstance(link, ledger_state.BanLink) and link.round == round_number:
                return place
        return None

    def ended(self, round_number: int) -> ledger_state.EndLink | None:
        place = self.end_of(round_number)
        link = None if place is None else self.links[place]
        return None if isinstance(link, ledger_state.BanLink) else link

    def bans(self) -> tuple[ledger_state.BanLink, ...]:
        return tuple(link for link in self.links if isinstance(link, ledger_state.BanLink))


MAX_PROOF_BYTES = 64 << 20  # size of a document whose path is a hundred thousand rounds long


@dataclass(frozen=True, slots=True)
class EventLocation:
    """The location of an event on a chain; `log_index` counts from 0 within the block."""

    block_number: int
    block_hash: bytes
    transaction_hash: bytes
    log_index: int


@dataclass(frozen=True, slots=True)
class CommittedDecision:
    """The parts of a decision that its head commits to; see `RoundDecided`."""

    ranking: tuple[int, ...]
    model: Digest
    updates_root: Digest
    scores_root: Digest
    reveal: Digest
    record: Digest
    views: tuple[int, int]
    signers: tuple[int, int]
    incidents: Digest
    next_seed: Digest | None  # seed_{t+1}; None if there are C candidates, and none is drawn

    def result(self) -> Digest:
        ranking = encoding.ranking_digest(self.ranking)
        roots = self.updates_root, self.scores_root
        opening = encoding.ResultPreimage(self.model, *roots, ranking, self.reveal, self.record)
        return encoding.aggregation_result(opening)


class RecordedBan(NamedTuple):
    """A ban that was recorded before the round opened."""

    round: int
    client: ClientId


class RecordedCommitment(NamedTuple):
    """A commitment that the contract took."""

    client: ClientId
    commitment: Digest


@dataclass(frozen=True)
class RoundBasis:
    """The basis of a round: the run, the heads before and after it, and its participants."""

    chain_id: int
    address: Address
    # Hash of the block before the deployment, a part of the salt; zeros with `beacon = none`.
    deployed_after: Digest
    genesis_hash: bytes
    round: int
    configuration: bytes  # the run document's bytes
    path: HeadPath  # from before the round to after it; from the configuration on if whole
    seed: Digest
    committee: tuple[ClientId, ...]  # S_c, by places
    bans: tuple[RecordedBan, ...]  # those recorded before the round opened, in the chain's order

    @cached_property
    def domain(self) -> Domain:
        return ledger_state.domain_of(
            self.deployment, self.chain_id, self.address, self.deployed_after
        )

    @cached_property
    def config(self) -> Digest:
        return encoding.sha256(self.configuration)

    @property
    def document(self) -> RunDocument:
        return _document(self.configuration)

    @property
    def deployment(self) -> ledger_state.Deployment:
        return _deployment(self.configuration)

    @cached_property
    def registry(self) -> tuple[encoding.RegisteredClient, ...]:
        bans = (ledger_state.ClientBanned(ban.round, ban.client, NO_DIGEST) for ban in self.bans)
        return ledger_state.registry_with_bans(self.document.registry, bans)

    @cached_property
    def participants(self) -> Participants:
        sizes = self.deployment
        return participants_of(sizes, self.registry, self.round, self.seed, self.committee)

    def parts(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(RoundBasis)}

    @property
    def is_whole(self) -> bool:
        """Say whether the path begins with the run, so that no earlier ban can be hidden."""
        return self.path.start == self.config

    @property
    def path_to_end(self) -> HeadPath:
        """The path up to where the round ends: a head does not commit to what follows it."""
        return HeadPath(self.path.start, self.path.links[: self.path.end_of(self.round)])


@dataclass(frozen=True)
class ClientProof(RoundBasis):
    """A statement about one client in one round, with all that it follows from."""

    client: ClientId
    commitments: tuple[RecordedCommitment, ...]  # all of the round, in the chain's order
    decision: CommittedDecision | None
    signature: bytes | None  # of its commitment; None if it has none, or it cannot be read
    committed_at: EventLocation | None  # where the chain holds its commitment; None without one
    ended_at: EventLocation | None  # where the chain holds decision or abandonment; None while open
    statement: ClientStatement
    record: bytes | None = None  # None where it is not needed, or not available
    payload: Digest | None = None  # digest of the client's payload; None where none is known
    siblings: tuple[Digest, ...] | None = None  # Merkle proof in the updates root; None if unranked

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
        return None if self.record is None else decode_record(self.record)

    @cached_property
    def commitment(self) -> Digest | None:
        own = (one.commitment for one in self.commitments if one.client == self.client)
        return next(own, None)


def derive_statement(proof: ClientProof) -> ClientStatement:
    """Return what became of the client, as it follows from all but the claimed statement."""
    client, decision, record = proof.client, proof.decision, proof.recorded
    role, dropout = _role(proof), None
    known = role, proof.commitment is not None
    if decision is None:
        is_open = proof.path.ended(proof.round) is None
        return ClientStatement(ClientVerdict.OPEN if is_open else ClientVerdict.ABANDONED, *known)
    if role in {ProvenRole.NOT_SAMPLED, ProvenRole.BANNED}:
        return ClientStatement(ClientVerdict(role), *known)
    if record is not None:
        dropout = {entry.client: entry.reason for entry in record.dropouts}.get(client)
    if role is ProvenRole.MEMBER:
        verdict, (scores, refusal) = ClientVerdict.MEMBER, _scores(proof, record)
        return ClientStatement(verdict, *known, dropout=dropout, scores=scores, refusal=refusal)
    bits = {encoding.word_client(word): word >> 32 for word in decision.ranking}
    if client not in bits:
        return ClientStatement(ClientVerdict.DROPPED_OUT, *known, dropout=dropout)
    accepted, form = proof.sets[0], proof.deployment.form
    rank = Rank([*bits].index(client), len(bits), bits[client], client in accepted)
    edge = accepted[0 if form is AcceptanceForm.LAST else -1]
    cut_off = CutOff(form, len(accepted), bits[edge])
    if not rank.accepted:
        return ClientStatement(ClientVerdict.NOT_USED, *known, rank, cut_off)
    weights = weights_of(proof.document.parameters.form, proof.document.registry, accepted)
    weight = UpdateWeight(weights[client], sum(weights.values()))
    return ClientStatement(ClientVerdict.USED, *known, rank, cut_off, weight)


def _role(proof: ClientProof) -> ProvenRole:
    if proof.client in proof.committee:
        return ProvenRole.MEMBER
    if proof.registry[proof.client].is_banned_in(proof.round):
        return ProvenRole.BANNED
    is_trainer = proof.client in proof.participants.trainers
    return ProvenRole.TRAINER if is_trainer else ProvenRole.NOT_SAMPLED


def _scores(
    proof: ClientProof, record: RoundRecord | None
) -> tuple[ScoresTaken, RefusalReason | None]:
    if proof.client in proof.participants.banned:
        return ScoresTaken.EMPTY_SEAT, None
    if record is None:
        return ScoresTaken.UNKNOWN, None
    if any(signed.scores.member == proof.client for signed in record.scores):
        return ScoresTaken.COUNTED, None
    refused = (item for item in record.refused if item.signed.scores.member == proof.client)
    entry = next(refused, None)
    return (ScoresTaken.NONE, None) if entry is None else (ScoresTaken.REFUSED, entry.reason)


# A check of many proofs of a run reads its configuration once.
_document = lru_cache(maxsize=8)(decode_run)


@lru_cache(maxsize=8)
def _deployment(configuration: bytes) -> ledger_state.Deployment:
    document = _document(configuration)
    config = encoding.sha256(configuration)
    parameters, model = document.parameters, document.initial_model
    return ledger_state.deployment_of(parameters, config, document.registry, model)[0]


@dataclass(frozen=True, slots=True)
class EarlierDecision(encoding.ResultPreimage):
    """The preimage of an earlier round's result, which names its model."""

    round: int


@dataclass(frozen=True)
class RoundBundle(RoundBasis):
    """A round that has ended, as a bundle describes it; its blobs are separate parts."""

    opened_block: int
    earlier: tuple[EarlierDecision, ...]
    blocks: tuple[Block, ...]  # with an event of the round, ascending; their times are not kept
    transactions: tuple[Transaction, ...]  # of these events; their senders are not kept
    logs: tuple[Log, ...]

    def model_at(self, round_number: int) -> Digest:
        """Return the digest of the model that the bundle's round, or an earlier one, began with."""
        link = self.decided_before(round_number)
        if link is None:
            if self.is_whole:
                return self.document.initial_model
            raise EncodingError(
                f"the path does not reach the starting model of round {round_number}"
            )
        for earlier in self.earlier:
            if earlier.round == link.round:
                return earlier.model
        raise EncodingError(f"the parts of the result of round {link.round} are not in the bundle")

    @property
    def links_to_end(self) -> int:
        end = self.path.end_of(self.round)
        assert end is not None, "a bundle is of a round that has ended"
        return end + 1

    def needed(self) -> tuple[ledger_state.DecisionLink, ...]:
        links = (self.decided_before(number) for number in rounds_of_models(self))
        return tuple(dict.fromkeys(link for link in links if link is not None))

    def decided_before(self, round_number: int) -> ledger_state.DecisionLink | None:
        links = reversed(self.path_to_end.links)
        decided = (link for link in links if isinstance(link, ledger_state.DecisionLink))
        return next((link for link in decided if link.round < round_number), None)


def rounds_of_models(basis: RoundBasis) -> tuple[int, ...]:
    """Return the rounds whose first models a round's rules need: its own, and the travel's."""
    parameters, number = basis.document.parameters, basis.round
    if not needs_displacement(parameters, number):
        return (number,)
    return (number, window_start(number))
