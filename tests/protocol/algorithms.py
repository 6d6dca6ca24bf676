"""Algorithms 1, 2 and 3 of the paper, one function each; numbers in the margin are its lines.

No run is scheduled so; a test holds `ledger/actors` to the same certificates and heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from ledger.protocol.inputs import Participants, primary_seat
from ledger.protocol.ledger_state import QuorumCertificate
from ledger.protocol.parameters import MAX_VIEWS
from ledger.protocol.types import ClientId, Digest, Phase, SignedVote, Slot, Vote, VoteKind

if TYPE_CHECKING:
    from ledger.protocol.judgement import Judgement

IsSigned = Callable[[SignedVote], bool]  # tells whether a vote carries its member's signature


class NoConsensusError(Exception):
    """The committee could not agree on a decision in this round."""


class VotingMember(Protocol):
    """One member of the committee; everything that it sends is broadcast to all members."""

    client: ClientId

    def publish_scores(self) -> None:
        """Publish the signed score vector of the round."""

    def request(self, phase: Phase, view: int) -> tuple[SignedVote, ...]:
        """Return the signed request of this member as primary."""

    def reply(self, request: SignedVote) -> tuple[SignedVote, ...]:
        """Return the signed reply to a request, none if this member judges otherwise."""

    def judgement(self, result: Digest) -> Judgement | None:
        """Return the judgement of a result, None if this member has not verified it."""


class Clients(Protocol):
    """All clients of a run."""

    def train(self, round_number: int, active: Sequence[ClientId]) -> None:
        """Local SGD of the active clients; each commits its update, then publishes it."""

    def members(self) -> Sequence[VotingMember | None]:
        """Return the members of the open round by their seats; None for a vacant one."""


class Ledger(Protocol):
    """The contract, as the algorithm needs it."""

    replies: int

    @property
    def round(self) -> int:
        """t, the round that is open, or the last."""

    @property
    def seed(self) -> Digest:
        """seed_t."""

    @property
    def finished(self) -> bool:
        """True if no round is open any more."""

    def participants(self) -> Participants:
        """Return the participants of the open round."""

    def base(self) -> Digest:
        """Return the round's commitments digest after its closing block."""

    def decide(
        self, judgement: Judgement, certificates: tuple[QuorumCertificate, QuorumCertificate]
    ) -> None:
        """Record the round; the next one opens with the elected committee."""

    def abandon(self) -> None:
        """End the round without a decision once its deadline is reached."""


@dataclass(frozen=True, slots=True)
class Ballot:
    """One vote of Algorithm 2, and its participants."""

    round: int
    seed: Digest
    base: Digest
    committee: Sequence[VotingMember | None]
    replies: int
    is_signed: IsSigned


def training(ledger: Ledger, clients: Clients, is_signed: IsSigned) -> None:
    """Run rounds until the last one (Algorithm 3); line 1 is the contract's deployment."""
    while not ledger.finished:  # 2
        training_round(ledger, clients, is_signed)


def training_round(ledger: Ledger, clients: Clients, is_signed: IsSigned) -> None:
    participants = ledger.participants()  # 16: S_b is drawn anew
    clients.train(ledger.round, participants.active)  # 3-7, 10
    vote = Ballot(
        ledger.round, ledger.seed, ledger.base(), clients.members(), ledger.replies, is_signed
    )
    try:
        judgement, certificates = committee_consensus(vote)  # 8-15
    except NoConsensusError:
        ledger.abandon()
        return
    ledger.decide(judgement, certificates)  # 17-19: the recorded model is what clients download


def committee_consensus(
    vote: Ballot,
) -> tuple[Judgement, tuple[QuorumCertificate, QuorumCertificate]]:
    """Let the committee agree on a round (Algorithm 1)."""
    for member in vote.committee:  # 1-5
        if member is not None:
            member.publish_scores()
    aggregation = voting(vote, Phase.AGGREGATION)  # 6-11
    election = voting(vote, Phase.ELECTION)  # 12
    replied = {reply.member for reply in aggregation.replies}
    for member in vote.committee:
        if member is not None and member.client in replied:
            judgement = member.judgement(election.vote.result)
            if judgement is not None:
                return judgement, (aggregation, election)
    raise NoConsensusError("no replier has verified the certified result")


def voting(vote: Ballot, phase: Phase) -> QuorumCertificate:
    """Return the certificate of a phase (Algorithm 2)."""
    for view in range(MAX_VIEWS):  # 1
        primary = vote.committee[primary_seat(vote.seed, phase, view, len(vote.committee))]  # 2
        if primary is None:
            continue
        slot = Slot(VoteKind.REQUEST, vote.round, phase, view, vote.base)
        requests = _cast(primary.request(phase, view), primary.client, slot, vote)  # 3-7
        if len(requests) != 1:
            continue
        replies: list[SignedVote] = []
        for member in vote.committee:  # 8
            if member is None or member is primary:
                continue
            expected = replace(slot, kind=VoteKind.REPLY)
            answers = _cast(member.reply(requests[0]), member.client, expected, vote)  # 9-13
            replies += [answer for answer in answers if _agrees(answer, requests[0])]
            if len(replies) == vote.replies:  # 14
                return QuorumCertificate(requests[0], tuple(replies))  # 15, 18
    raise NoConsensusError(f"no quorum in {MAX_VIEWS} views of phase {phase.name.lower()}")


def _cast(
    sent: Iterable[SignedVote], sender: ClientId, slot: Slot, vote: Ballot
) -> tuple[SignedVote, ...]:
    votes: dict[Vote, SignedVote] = {}
    for signed in sent:
        if signed.member == sender and signed.vote.slot == slot and vote.is_signed(signed):
            votes.setdefault(signed.vote, signed)
    return tuple(votes.values())


def _agrees(answer: SignedVote, request: SignedVote) -> bool:
    return answer.vote == replace(request.vote, kind=VoteKind.REPLY)
