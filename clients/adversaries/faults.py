"""Faults of members and trainers that are not attacks on updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from clients.datasets.federated_data import named_stream
from ledger.actors.participants import Member, MemberActor, Trainer
from ledger.actors.steps import Action, PostEnvelope, SendDecision, SendReport
from ledger.actors.view import ChainView, RoundView
from ledger.protocol.documents.envelope import Body, Proposal, PublishedScores, Reply
from ledger.protocol.documents.record import (
    ScoreVector,
    decode_record,
    encode_record,
    encode_vector,
)
from ledger.protocol.encoding import aggregation_result, commitment_of, set_digest, sha256
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.judgement import counted_vectors, rank_trainers
from ledger.protocol.ledger_state import EquivocationReport, SignedStatement
from ledger.protocol.payloads import Payload
from ledger.protocol.rules.distance import RELATIVE_TOLERANCE
from ledger.protocol.signing import Signer, sign
from ledger.protocol.types import (
    NO_DIGEST,
    ClientId,
    Phase,
    Scores,
    SignedScores,
    SignedVote,
    Vote,
    VoteKind,
)
from ledger.protocol.validation import parse_vector


class MemberFault(StrEnum):
    """Faults of a committee member; see `MEMBERS`."""

    FALSE_SCORES = "false-scores"
    SILENT = "silent"
    WRONG_PROPOSAL = "wrong-proposal"
    EQUIVOCATING = "equivocating"
    GRINDING = "grinding"
    VIEW_JUMPER = "view-jumper"
    FALSE_REFERENCE = "false-reference"
    WHITEWASHING = "whitewashing"
    FAVOURING = "favouring"
    COLLUDING = "colluding"
    COPYING = "copying"


FAVOURS = frozenset({MemberFault.FAVOURING, MemberFault.COLLUDING})
"""Faults of members that favour somebody."""


class TrainerFault(StrEnum):
    """Faults of a training client; see `trainer_with`."""

    NOT_FINITE = "not-finite"
    WRONG_LENGTH = "wrong-length"
    SILENT = "silent"
    LATE = "late"
    STRAY = "stray"
    COPIED = "copied"
    SELF_BAN = "self-ban"


UNINVITED = frozenset({TrainerFault.STRAY})  # they act in rounds without being active


Fault = TypeVar("Fault", MemberFault, TrainerFault)


def assign_faults(
    candidates: Sequence[int], counts: Mapping[Fault, int], rng: np.random.Generator
) -> dict[int, Fault]:
    """Return the fault of each faulty candidate, at most one each, ascending by client."""
    if any(count < 0 for count in counts.values()):
        raise ConfigurationError("a number of faulty clients is negative")
    faults = [fault for fault, count in counts.items() for _ in range(count)]
    if len(faults) > len(candidates):
        raise ConfigurationError(f"{len(faults)} faulty clients: at most {len(candidates)}")
    chosen = rng.choice(np.array(candidates, dtype=np.int64), len(faults), replace=False)
    return dict(sorted(zip(chosen.tolist(), faults, strict=True)))


def false_scores(distances: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the false distances of a lying member: near looks far, and far looks near."""
    order = np.argsort(distances, kind="stable")
    lies = np.empty_like(distances)
    lies[order] = distances[order[::-1]]
    return lies * rng.uniform(1.0, 10.0)


def wild_reference(honest: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a member's update, shape (d,), scaled to be a wild reference for its scores."""
    return (honest * 100.0).astype("<f4")


def faulty_payload(honest: Payload, fault: TrainerFault) -> Payload | None:
    """Return the payload of a faulty trainer; None if it publishes nothing."""
    match fault:
        case TrainerFault.NOT_FINITE:
            return Payload.of(np.full(honest.size // 4, np.nan, dtype="<f4").tobytes())
        case TrainerFault.WRONG_LENGTH:
            return Payload.of(memoryview(honest.data).cast("B")[:-1])
        case TrainerFault.SILENT:
            return None
        case _:
            return honest


class FaultyMember:
    """Acts as the honest member, except for a subclass's changes."""

    def __init__(self, member: Member, signer: Signer, favoured: frozenset[ClientId]) -> None:
        self.client, self.member = member.client, member
        self.favoured, self._signer = favoured, signer

    def step(self, view: RoundView, now: float) -> list[Action]:
        actions = self.member.step(view, now)
        return [changed for action in actions for changed in self.changed(view, action)]

    def next_time(self, view: RoundView, now: float) -> float | None:
        return self.member.next_time(view, now)

    def changed(self, view: RoundView, action: Action) -> list[Action]:
        if isinstance(action, PostEnvelope) and action.envelope.client == self.client:
            bodies = self.changed_body(view, action.envelope.body)
            return [PostEnvelope(replace(action.envelope, body=body)) for body in bodies]
        return [action]

    def changed_body(self, view: RoundView, body: Body) -> list[Body]:  # noqa: ARG002
        return [body]

    def signed_vote(self, view: RoundView, vote: Vote) -> SignedVote:
        return SignedVote(self.client, vote, sign(self._signer, view.inputs.domain, vote))

    def published(self, view: RoundView, vector: ScoreVector, claim: Scores) -> PublishedScores:
        data = encode_vector(vector)
        scores = replace(claim, digest=sha256(data))
        signature = sign(self._signer, view.inputs.domain, scores)
        return PublishedScores(SignedScores(scores, signature), data)


class LyingMember(FaultyMember):
    """Member that publishes false scores: large distances for near clients, small for far ones."""

    def changed_body(self, view: RoundView, body: Body) -> list[Body]:
        vector = parse_vector(body.vector) if isinstance(body, PublishedScores) else None
        if not isinstance(body, PublishedScores) or vector is None:
            return [body]
        claimed = {signed.scores.member for signed in view.claims_for(body.signed.scores.clients)}
        lie = None if self.client in claimed else self.lie(view, vector)
        return [] if lie is None else [self.published(view, lie, body.signed.scores)]

    def lie(self, view: RoundView, vector: ScoreVector) -> ScoreVector | None:
        """Return what is published instead of a true vector, None for nothing yet."""
        stream = named_stream(view.inputs.seed, "false scores", int(self.client))
        return replace(vector, distances=false_scores(vector.distances, stream))

    def favoured_near(
        self, vector: ScoreVector, others: NDArray[np.float64] | float
    ) -> ScoreVector:
        favoured = [client in self.favoured for client in vector.trainers]
        return replace(vector, distances=np.where(favoured, 0.0, others))


class FavouringMember(LyingMember):
    """Member that gives favoured clients distance 0, and scores all others honestly."""

    def lie(self, view: RoundView, vector: ScoreVector) -> ScoreVector:  # noqa: ARG002
        return self.favoured_near(vector, vector.distances)


class ColludingMember(LyingMember):
    """Member that publishes agreed scores: distance 0 for favoured clients, 1e6 for others."""

    def lie(self, view: RoundView, vector: ScoreVector) -> ScoreVector:  # noqa: ARG002
        return self.favoured_near(vector, 1e6)


class CopyingMember(LyingMember):
    """Member that computes nothing, and publishes another member's scores as its own."""

    def lie(self, view: RoundView, vector: ScoreVector) -> ScoreVector | None:
        for signed in view.claims_for(set_digest(vector.clients)):
            other = parse_vector(view.evidence.vectors[signed.scores.digest])
            if other is None or other.clients != vector.clients:
                continue
            claims = other.claims()
            # A distance is the same both ways: the one to the copied member is its own to this one.
            claims[other.member] = claims.get(self.client, 0.0)
            distances = np.array([claims[client] for client in vector.trainers])
            of_members = np.array([claims[client] for client in vector.members])
            return replace(vector, distances=distances, member_distances=of_members)
        return None


class FalseReferenceMember(FaultyMember):
    """Member that scores with a wild update, 100 times as long as the honest one."""


class SilentMember(FaultyMember):
    """Member that sends no scores, no requests and no replies."""

    def changed(self, view: RoundView, action: Action) -> list[Action]:  # noqa: ARG002
        return []


class WrongProposer(FaultyMember):
    """Member that, as primary, proposes a set without its first client; it replies honestly."""

    def changed_body(self, view: RoundView, body: Body) -> list[Body]:
        return [self.wrong(view, body) if isinstance(body, Proposal) else body]

    def wrong(self, view: RoundView, proposal: Proposal) -> Proposal:
        vote = proposal.request.vote
        wrong = replace(vote, set_digest=set_digest(view.inputs.participants.committee[1:]))
        return replace(proposal, request=self.signed_vote(view, wrong))


class EquivocatingMember(WrongProposer):
    """Member that signs two different votes in the same view, as primary and as replica."""

    def changed_body(self, view: RoundView, body: Body) -> list[Body]:
        if isinstance(body, Proposal):
            return [body, self.wrong(view, body)]
        if isinstance(body, Reply):
            return [body, Reply(self.signed_vote(view, replace(body.reply.vote, result=NO_DIGEST)))]
        return [body]


class GrindingMember(LyingMember):
    """Member that waits for all others' scores, then changes its own within the tolerance."""

    def lie(self, view: RoundView, vector: ScoreVector) -> ScoreVector | None:
        claims = view.claims_for(set_digest(vector.clients))
        expected = set(vector.members) & set(view.inputs.participants.members)
        if len({signed.scores.member for signed in claims}) < len(expected) - 1:
            return None
        return replace(vector, distances=vector.distances * (1 + 0.4 * RELATIVE_TOLERANCE))


class ViewJumper(FaultyMember):
    """Member that sends its request for a later view before any member enters that view."""

    def step(self, view: RoundView, now: float) -> list[Action]:
        actions = super().step(view, now)
        clients = view.usable
        for number in range(1, 8):
            is_own = view.primary(Phase.AGGREGATION, number) == self.client
            if is_own and not view.requests(Phase.AGGREGATION, number):
                return actions + self.member.steps.propose(view, number, clients)
        return actions


class WhitewashingMember(FaultyMember):
    """Member that removes refused scores from the record, as primary and as sender."""

    def changed(self, view: RoundView, action: Action) -> list[Action]:
        if isinstance(action, SendDecision):
            record = sha256(b"another record" + view.inputs.seed)
            return [replace(action, decision=replace(action.decision, record=record))]
        return super().changed(view, action)

    def changed_body(self, view: RoundView, body: Body) -> list[Body]:
        if not isinstance(body, Proposal) or body.record is None or body.opening is None:
            return [body]
        record = replace(decode_record(body.record), refused=())
        data = encode_record(record)
        ranking = rank_trainers(view.inputs.parameters, counted_vectors(record, view.evidence))
        opening = replace(body.opening, record=sha256(data))
        accepted, result = set_digest(ranking.accepted), aggregation_result(opening)
        vote = replace(body.request.vote, set_digest=accepted, result=result)
        return [replace(body, request=self.signed_vote(view, vote), opening=opening, record=data)]


MEMBERS: dict[MemberFault, Callable[[Member, Signer, frozenset[ClientId]], FaultyMember]] = {
    MemberFault.FALSE_SCORES: LyingMember,
    MemberFault.SILENT: SilentMember,
    MemberFault.WRONG_PROPOSAL: WrongProposer,
    MemberFault.EQUIVOCATING: EquivocatingMember,
    MemberFault.GRINDING: GrindingMember,
    MemberFault.VIEW_JUMPER: ViewJumper,
    MemberFault.WHITEWASHING: WhitewashingMember,
    MemberFault.FALSE_REFERENCE: FalseReferenceMember,
    MemberFault.FAVOURING: FavouringMember,
    MemberFault.COLLUDING: ColludingMember,
    MemberFault.COPYING: CopyingMember,
}


def member_with(
    fault: MemberFault | None,
    member: Member,
    signer: Signer,
    favoured: frozenset[ClientId] = frozenset(),
) -> MemberActor:
    """Return a member with a fault, or the honest one; favouring faults favour `favoured`."""
    return member if fault is None else MEMBERS[fault](member, signer, favoured)


class UnusableTrainer(Trainer):
    """Trainer that publishes bytes that are not an update, or nothing."""

    def __init__(self, client: ClientId, signer: Signer, fault: TrainerFault) -> None:
        super().__init__(client, signer)
        self._fault = fault

    def payload_for(self, update: Payload) -> Payload | None:
        return faulty_payload(update, self._fault)


class LateTrainer(Trainer):
    """Trainer that commits only after the committee has begun to vote."""

    def commit(self, chain: ChainView, update: Payload | None) -> list[Action]:
        super().commit(chain, update)
        return []

    def act_while_voting(self, view: RoundView) -> list[Action]:
        if self._payload is None or self.client in view.inputs.closing.commitments:
            return []
        return [self.signed(view.inputs, commitment_of(self.client, self._payload.digest))]


class StrayClient(Trainer):
    """Client that commits even when it is not active."""

    def commit(self, chain: ChainView, update: Payload | None) -> list[Action]:
        if update is not None:
            return super().commit(chain, update)
        self._payload = None
        if not chain.takes_commitments or self.client in chain.committed:
            return []
        return [self.signed(chain, sha256(b"stray" + chain.seed))]


class CopyingTrainer(Trainer):
    """Trainer that copies the first commitment that it sees, to profit from the payload."""

    def commit(self, chain: ChainView, update: Payload | None) -> list[Action]:
        self._payload = None
        others = [mined for mined in chain.commitments if mined.client != self.client]
        if update is None or not others or self.client in chain.committed:
            return []
        return [self.signed(chain, others[0].commitment)]


class SelfBanningTrainer(Trainer):
    """Trainer that proves its own equivocation while the committee votes."""

    def act_while_voting(self, view: RoundView) -> list[Action]:
        inputs = view.inputs
        if self._payload is None or inputs.registry[self.client].banned_in:
            return []
        signed = []
        for result in (NO_DIGEST, inputs.closing.base):
            slot = (VoteKind.REPLY, inputs.round, Phase.AGGREGATION, 0, inputs.closing.base)
            vote = Vote(*slot, NO_DIGEST, result)
            signed.append(SignedStatement(vote, sign(self._signer, inputs.domain, vote)))
        return [SendReport(EquivocationReport(self.client, *signed))]


TRAINERS: dict[TrainerFault, Callable[[ClientId, Signer], Trainer]] = {
    TrainerFault.LATE: LateTrainer,
    TrainerFault.STRAY: StrayClient,
    TrainerFault.COPIED: CopyingTrainer,
    TrainerFault.SELF_BAN: SelfBanningTrainer,
}
"""Trainers with a fault that is not in the payload alone."""
PAYLOAD_FAULTS = {
    TrainerFault.NOT_FINITE: "Trainer that publishes an update of NaN values",
    TrainerFault.WRONG_LENGTH: "Trainer that publishes an update with one byte missing",
    TrainerFault.SILENT: "Trainer that sends no commitment and no update",
}
"""A sentence for each fault of `UnusableTrainer`."""


def trainer_with(fault: TrainerFault | None, client: ClientId, signer: Signer) -> Trainer:
    """Return a client with a fault; an honest one without."""
    if fault is None:
        return Trainer(client, signer)
    if fault in TRAINERS:
        return TRAINERS[fault](client, signer)
    return UnusableTrainer(client, signer, fault)
