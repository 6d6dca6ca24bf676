"""Faulty members: each wraps an honest one and changes what it says.

They sign without slashing protection: their keys do what an honest member's key never can.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clients.adversaries.faults import MemberFault, false_scores
from clients.random_streams import named_stream
from ledger.actors.actions import Action, PostEnvelope, SendDecision
from ledger.actors.member import Member, MemberActor
from ledger.actors.view import RoundView
from ledger.protocol.documents.envelope import Body, Proposal, PublishedScores, Reply
from ledger.protocol.documents.record import decode_record, encode_record
from ledger.protocol.documents.vector import ScoreVector, encode_vector
from ledger.protocol.encoding import aggregation_result, set_digest, sha256
from ledger.protocol.judgement import counted_vectors, rank_trainers
from ledger.protocol.rules.distance import RELATIVE_TOLERANCE
from ledger.protocol.scores import parse_vector
from ledger.protocol.signing import Signer, sign
from ledger.protocol.types import NO_DIGEST, ClientId, Phase, Scores, SignedScores, SignedVote, Vote

_FAR = 1e6
JUMPED_VIEWS = 8
"""Views ahead in which a jumper may be primary."""


class FaultyMember:
    """Does what the honest member does, but for what a subclass changes.

    Attributes:
        favoured: whom it favours, if its fault is of that kind.
    """

    def __init__(
        self, member: Member, signer: Signer, favoured: frozenset[ClientId] = frozenset()
    ) -> None:
        self.client = member.client
        self.member = member
        self.favoured = favoured
        self._signer = signer

    def step(self, view: RoundView, now: float) -> list[Action]:
        """Return the honest member's actions, each changed as the fault has it."""
        actions = self.member.step(view, now)
        return [changed for action in actions for changed in self.changed(view, action)]

    def next_time(self, view: RoundView, now: float) -> float | None:
        """Return when the honest member may have something to do."""
        return self.member.next_time(view, now)

    def changed(self, view: RoundView, action: Action) -> list[Action]:
        """Return what is done instead of an action."""
        if isinstance(action, PostEnvelope) and action.envelope.client == self.client:
            bodies = self.changed_body(view, action.envelope.body)
            return [PostEnvelope(replace(action.envelope, body=body)) for body in bodies]
        return [action]

    def changed_body(self, view: RoundView, body: Body) -> list[Body]:  # noqa: ARG002
        """Return the messages sent in place of one."""
        return [body]

    def signed_vote(self, view: RoundView, vote: Vote) -> SignedVote:
        return SignedVote(self.client, vote, sign(self._signer, view.inputs.domain, vote))

    def published(self, view: RoundView, vector: ScoreVector, claim: Scores) -> PublishedScores:
        """Return a vector with this member's signature, for the set of another claim."""
        data = encode_vector(vector)
        scores = replace(claim, digest=sha256(data))
        signature = sign(self._signer, view.inputs.domain, scores)
        return PublishedScores(SignedScores(scores, signature), data)


class LyingMember(FaultyMember):
    """Publishes false scores: who is near looks far."""

    def changed_body(self, view: RoundView, body: Body) -> list[Body]:
        """Falsify an own vector, once."""
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
        """Return a vector with distances of 0 for the favoured, and others for the rest."""
        favoured = [client in self.favoured for client in vector.trainers]
        return replace(vector, distances=np.where(favoured, 0.0, others))


class FavouringMember(LyingMember):
    """Scores whom it favours as if their updates were its own, and all others honestly."""

    def lie(self, view: RoundView, vector: ScoreVector) -> ScoreVector:  # noqa: ARG002
        """Lower the distances of the favoured."""
        return self.favoured_near(vector, vector.distances)


class ColludingMember(LyingMember):
    """Publishes what all colluding members have agreed on: the favoured near, the others far.

    Its distances from other members stay true. Far is so large that under a mean one such member
    puts the favoured first, and no larger than needed to exceed any distance of updates of a model
    that still learns.
    """

    def lie(self, view: RoundView, vector: ScoreVector) -> ScoreVector:  # noqa: ARG002
        """Take the distances that were agreed on."""
        return self.favoured_near(vector, _FAR)


class CopyingMember(LyingMember):
    """Computes nothing: waits for another member's scores, and publishes them as its own."""

    def lie(self, view: RoundView, vector: ScoreVector) -> ScoreVector | None:
        """Take the distances of the first other member that has published any."""
        for signed in view.claims_for(set_digest(vector.clients)):
            other = parse_vector(view.evidence.vectors[signed.scores.digest])
            if other is None or other.clients != vector.clients:
                continue
            claims = other.claims()
            # A distance is the same both ways: the one to the copied member is its own to this one.
            claims[other.member] = claims.get(self.client, 0.0)
            return replace(
                vector,
                distances=np.array([claims[client] for client in vector.trainers]),
                member_distances=np.array([claims[client] for client in vector.members]),
            )
        return None


class SilentMember(FaultyMember):
    """Says nothing: no scores, no request, no reply."""

    def changed(self, view: RoundView, action: Action) -> list[Action]:  # noqa: ARG002
        """Do nothing."""
        return []


class WrongProposer(FaultyMember):
    """As primary proposes a set without its first client; replies honestly to others."""

    def changed_body(self, view: RoundView, body: Body) -> list[Body]:
        """Propose another set."""
        if not isinstance(body, Proposal):
            return [body]
        return [self.wrong(view, body)]

    def wrong(self, view: RoundView, proposal: Proposal) -> Proposal:
        """Return a signed request for a set that does not follow from the record."""
        vote = proposal.request.vote
        wrong = replace(vote, set_digest=set_digest(view.inputs.participants.committee[1:]))
        return replace(proposal, request=self.signed_vote(view, wrong))


class EquivocatingMember(WrongProposer):
    """Signs two different votes in the same view, as primary and as replica."""

    def changed_body(self, view: RoundView, body: Body) -> list[Body]:
        """Say both the right and a wrong thing."""
        if isinstance(body, Proposal):
            return [body, self.wrong(view, body)]
        if isinstance(body, Reply):
            other = replace(body.reply.vote, result=NO_DIGEST)
            return [body, Reply(self.signed_vote(view, other))]
        return [body]


class GrindingMember(LyingMember):
    """Waits for all others' scores, then bends its own within the margin that is tolerated."""

    def lie(self, view: RoundView, vector: ScoreVector) -> ScoreVector | None:
        """Publish last, with every distance a little larger than it is."""
        claims = view.claims_for(set_digest(vector.clients))
        expected = set(vector.members) & set(view.inputs.participants.members)
        if len({signed.scores.member for signed in claims}) < len(expected) - 1:
            return None
        return replace(vector, distances=vector.distances * (1 + 0.4 * RELATIVE_TOLERANCE))


class ViewJumper(FaultyMember):
    """Sends the request of a later view, whose primary it is, before any member enters it."""

    def step(self, view: RoundView, now: float) -> list[Action]:
        """Add a request from the future as soon as there are scores for one."""
        actions = super().step(view, now)
        clients = view.usable
        for number in range(1, JUMPED_VIEWS):
            is_own = view.primary(Phase.AGGREGATION, number) == self.client
            if is_own and not view.requests(Phase.AGGREGATION, number):
                return actions + self.member.steps.propose(view, number, clients)
        return actions


class WhitewashingMember(FaultyMember):
    """As primary, and as sender, drops from the record whose scores were refused."""

    def changed(self, view: RoundView, action: Action) -> list[Action]:
        """Send a decision with another record than the certified one."""
        if isinstance(action, SendDecision):
            record = sha256(b"another record" + view.inputs.seed)
            return [replace(action, decision=replace(action.decision, record=record))]
        return super().changed(view, action)

    def changed_body(self, view: RoundView, body: Body) -> list[Body]:
        """Propose a record without refusals."""
        if not isinstance(body, Proposal) or body.record is None or body.opening is None:
            return [body]
        record = replace(decode_record(body.record), refused=())
        data = encode_record(record)
        ranking = rank_trainers(view.inputs.parameters, counted_vectors(record, view.evidence))
        opening = replace(body.opening, record=sha256(data))
        vote = replace(
            body.request.vote,
            set_digest=set_digest(ranking.accepted),
            result=aggregation_result(opening),
        )
        return [replace(body, request=self.signed_vote(view, vote), opening=opening, record=data)]


MEMBERS: dict[MemberFault, Callable[[Member, Signer, frozenset[ClientId]], FaultyMember]] = {
    MemberFault.FALSE_SCORES: LyingMember,
    MemberFault.SILENT: SilentMember,
    MemberFault.WRONG_PROPOSAL: WrongProposer,
    MemberFault.EQUIVOCATING: EquivocatingMember,
    MemberFault.GRINDING: GrindingMember,
    MemberFault.VIEW_JUMPER: ViewJumper,
    MemberFault.WHITEWASHING: WhitewashingMember,
    # Scores honestly by an own update that is far too large; see `wild_reference`.
    MemberFault.FALSE_REFERENCE: FaultyMember,
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
