"""A committee member: honest, or with one of the faults that the protocol must survive."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from clients.attacks import MemberFault, false_scores
from clients.chance import named_stream
from ledger.protocol.documents import ScoreVector, encode_score_vector
from ledger.protocol.encoding import set_digest
from ledger.protocol.signing import sign
from ledger.protocol.types import Phase, Scores, SignedScores, SignedVote, Vote, VoteKind

if TYPE_CHECKING:
    from clients.round_view import RoundView
    from ledger.protocol.decision import Decision
    from ledger.protocol.signing import Signer
    from ledger.protocol.types import ClientId, Digest


class HonestMember:
    """A member that does what Algorithms 1 and 2 say.

    Attributes:
        client: who it is.
    """

    def __init__(self, client: ClientId, signer: Signer, view: RoundView) -> None:
        self.client = client
        self._signer = signer
        self._view = view

    def broadcast_scores(self) -> None:
        """Publish the score vector as a blob, and its signed digest to all members."""
        vector = self.score_vector()
        if vector is None:
            return
        digest = self._view.blobs.put(encode_score_vector(vector))
        scores = Scores(self._view.electorate.round, self.client, digest)
        signature = sign(self._signer, self._view.electorate.domain, scores)
        self._view.published.append(SignedScores(scores, signature))

    def score_vector(self) -> ScoreVector | None:
        """Return the distances to trainers and other members; None without an own update."""
        view = self._view
        if self.client not in view.updates.vectors:
            return None
        others = tuple(member for member in view.scoring_members if member != self.client)
        return ScoreVector(
            view.electorate.round,
            self.client,
            view.scored_trainers,
            np.array([view.distance(client, self.client) for client in view.scored_trainers]),
            others,
            np.array([view.distance(other, self.client) for other in others]),
        )

    def decide(self) -> Decision:
        """Return what follows from all published scores."""
        return self._view.decision

    def request(self, phase: Phase, view: int) -> tuple[SignedVote, ...]:
        """Return the signed request for this member's own decision."""
        return (self._signed(VoteKind.REQUEST, phase, view, *self.decide().voted(phase)),)

    def reply(self, request: SignedVote) -> tuple[SignedVote, ...]:
        """Return the signed reply if the request is what this member decides too."""
        vote = request.vote
        if (vote.set_digest, vote.result) != self.decide().voted(vote.phase):
            return ()
        return (self._signed(VoteKind.REPLY, vote.phase, vote.view, vote.set_digest, vote.result),)

    def _signed(
        self, kind: VoteKind, phase: Phase, view: int, set_of: Digest, result: Digest
    ) -> SignedVote:
        electorate = self._view.electorate
        vote = Vote(kind, electorate.round, phase, view, self._view.timestamp, set_of, result)
        return SignedVote(self.client, vote, sign(self._signer, electorate.domain, vote))


class LyingMember(HonestMember):
    """Publishes false scores: who is near looks far."""

    def score_vector(self) -> ScoreVector | None:
        """Return a vector with the trainers' distances falsified."""
        vector = super().score_vector()
        if vector is None:
            return None
        stream = named_stream(self._view.seed, "false scores", int(self.client))
        return replace(vector, distances=false_scores(vector.distances, stream))


class SilentMember(HonestMember):
    """Says nothing: no scores, no request, no reply."""

    def broadcast_scores(self) -> None:
        """Publish nothing."""

    def request(self, phase: Phase, view: int) -> tuple[SignedVote, ...]:  # noqa: ARG002
        """Return no request."""
        return ()

    def reply(self, request: SignedVote) -> tuple[SignedVote, ...]:  # noqa: ARG002
        """Return no reply."""
        return ()


class WrongProposer(HonestMember):
    """As primary proposes a set without its first client; replies honestly to others."""

    def request(self, phase: Phase, view: int) -> tuple[SignedVote, ...]:
        """Return a signed request for a set that does not follow from the ranking."""
        return (self._signed(VoteKind.REQUEST, phase, view, *self._wrong(phase)),)

    def _wrong(self, phase: Phase) -> tuple[Digest, Digest]:
        decision = self.decide()
        clients = decision.accepted if phase is Phase.AGGREGATION else decision.next_committee
        return set_digest(clients[1:]), decision.voted(phase)[1]


class EquivocatingMember(WrongProposer):
    """Signs two different votes in the same view, as primary and as replica."""

    def request(self, phase: Phase, view: int) -> tuple[SignedVote, ...]:
        """Return the right request and a wrong one."""
        right = self._signed(VoteKind.REQUEST, phase, view, *self.decide().voted(phase))
        return right, *super().request(phase, view)

    def reply(self, request: SignedVote) -> tuple[SignedVote, ...]:
        """Return the right reply and a wrong one."""
        vote = request.vote
        wrong = self._signed(VoteKind.REPLY, vote.phase, vote.view, *self._wrong(vote.phase))
        return *super().reply(request), wrong


MEMBERS: dict[MemberFault | None, type[HonestMember]] = {
    None: HonestMember,
    MemberFault.FALSE_SCORES: LyingMember,
    MemberFault.SILENT: SilentMember,
    MemberFault.WRONG_PROPOSAL: WrongProposer,
    MemberFault.EQUIVOCATING: EquivocatingMember,
}
