"""The schedule of Algorithms 1 to 3, with members that say what a script has them say.

What honest and faulty members really say under this schedule is `tests/clients/test_schedule.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from ledger.protocol.consensus import MAX_VIEWS, primary_seat
from ledger.protocol.encoding import keccak256
from ledger.protocol.errors import ConsensusError
from ledger.protocol.inputs import Participants
from ledger.protocol.types import ClientId, Digest, Phase, SignedVote, Vote, VoteKind
from tests.protocol.algorithms import Ballot, committee_consensus, training, voting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.protocol.consensus import QuorumCertificate
    from ledger.protocol.judgement import Judgement

SEED, BASE = keccak256(b"seed"), keccak256(b"base")
SETS = {Phase.AGGREGATION: keccak256(b"accepted"), Phase.ELECTION: keccak256(b"elected")}
RESULT, OTHER = keccak256(b"result"), keccak256(b"another result")
AGREED, FORGED = b"signed", b"forged"


def signed(member: int, kind: VoteKind, phase: Phase, view: int, **changed: object) -> SignedVote:
    vote = Vote(kind, 1, phase, view, BASE, SETS[phase], RESULT)
    return SignedVote(ClientId(member), replace(vote, **changed), AGREED)  # type: ignore[arg-type]


@dataclass
class Scripted:
    """A member that votes as asked, but for what its script says of a phase and view."""

    client: ClientId
    requests: dict[tuple[Phase, int], tuple[SignedVote, ...]] = field(default_factory=dict)
    replies: dict[tuple[Phase, int], tuple[SignedVote, ...]] = field(default_factory=dict)
    knows: bool = True
    asked: int = 0
    published: int = 0

    def publish_scores(self) -> None:
        self.published += 1

    def request(self, phase: Phase, view: int) -> tuple[SignedVote, ...]:
        usual = (signed(self.client, VoteKind.REQUEST, phase, view),)
        return self.requests.get((phase, view), usual)

    def reply(self, request: SignedVote) -> tuple[SignedVote, ...]:
        self.asked += 1
        vote = replace(request.vote, kind=VoteKind.REPLY)
        usual = (SignedVote(self.client, vote, AGREED),)
        return self.replies.get((vote.phase, vote.view), usual)

    def judgement(self, result: Digest) -> Judgement | None:
        assert result == RESULT
        return f"judged by {self.client}" if self.knows else None  # type: ignore[return-value]


def committee(size: int = 5) -> list[Scripted]:
    return [Scripted(ClientId(10 + place)) for place in range(size)]


def ballot(members: Sequence[Scripted | None], replies: int = 3) -> Ballot:
    return Ballot(1, SEED, BASE, members, replies, lambda vote: vote.signature == AGREED)


def primary_of(members: Sequence[Scripted | None], phase: Phase, view: int) -> Scripted:
    found = members[primary_seat(SEED, phase, view, len(members))]
    assert found is not None
    return found


def test_a_vote_ends_with_the_first_equal_replies_by_seat() -> None:
    members = committee()
    certificate = voting(ballot(members), Phase.AGGREGATION)
    primary = primary_of(members, Phase.AGGREGATION, 0)
    assert certificate.request.member == primary.client
    assert certificate.vote.result == RESULT
    others = [member for member in members if member is not primary]
    assert [reply.member for reply in certificate.replies] == [m.client for m in others[:3]]
    # Nobody is asked after the quorum, nor the primary itself.
    assert [member.asked for member in others] == [1, 1, 1, 0]
    assert primary.asked == 0


def test_as_many_replies_decide_as_the_deployment_says() -> None:
    assert len(voting(ballot(committee(), replies=4), Phase.ELECTION).replies) == 4


def two(member: int, phase: Phase) -> tuple[SignedVote, ...]:
    right = signed(member, VoteKind.REQUEST, phase, 0)
    return right, signed(member, VoteKind.REQUEST, phase, 0, result=OTHER)


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("fault", ["silent", "two requests", "of another view", "not signed"])
def test_a_primary_without_one_genuine_request_is_replaced(phase: Phase, fault: str) -> None:
    members = committee()
    first = primary_of(members, phase, 0)
    right = signed(first.client, VoteKind.REQUEST, phase, 0)
    first.requests[phase, 0] = {
        "silent": (),
        "two requests": two(first.client, phase),
        "of another view": (signed(first.client, VoteKind.REQUEST, phase, 1),),
        "not signed": (replace(right, signature=FORGED),),
    }[fault]
    assert voting(ballot(members), phase).vote.view == 1


def test_the_same_request_twice_is_one_request() -> None:
    members = committee()
    primary = primary_of(members, Phase.AGGREGATION, 0)
    request = signed(primary.client, VoteKind.REQUEST, Phase.AGGREGATION, 0)
    primary.requests[Phase.AGGREGATION, 0] = (request, request)
    assert voting(ballot(members), Phase.AGGREGATION).vote.view == 0


@pytest.mark.parametrize("fault", ["silent", "disagrees", "another's vote", "not signed"])
def test_replies_that_are_not_equal_and_genuine_do_not_count(fault: str) -> None:
    members, phase = committee(), Phase.AGGREGATION
    primary = primary_of(members, phase, 0)
    for member in [m for m in members if m is not primary][:2]:
        reply = signed(member.client, VoteKind.REPLY, phase, 0)
        member.replies[phase, 0] = {
            "silent": (),
            "disagrees": (replace(reply, vote=replace(reply.vote, result=OTHER)),),
            "another's vote": (signed(primary.client, VoteKind.REPLY, phase, 0),),
            "not signed": (replace(reply, signature=FORGED),),
        }[fault]
    # Two of the four others are left, and three must reply.
    assert voting(ballot(members), phase).vote.view == 1
    assert voting(ballot(members, replies=2), phase).vote.view == 0


def test_an_empty_seat_is_neither_primary_nor_asked() -> None:
    members: list[Scripted | None] = [*committee()]
    place = primary_seat(SEED, Phase.AGGREGATION, 0, 5)
    members[place] = None
    certificate = voting(ballot(members), Phase.AGGREGATION)
    assert certificate.vote.view > 0
    assert 10 + place not in {reply.member for reply in certificate.replies}


def test_a_committee_gives_up_after_the_last_view() -> None:
    members = committee()
    for member in members:
        member.requests = {(phase, view): () for phase in Phase for view in range(MAX_VIEWS)}
    with pytest.raises(ConsensusError, match=f"no quorum in {MAX_VIEWS} views of phase election"):
        voting(ballot(members), Phase.ELECTION)


def test_consensus_is_scores_then_two_votes_then_a_judgement() -> None:
    members: list[Scripted | None] = [*committee(), None]
    judgement, certificates = committee_consensus(ballot(members))
    assert [member.published for member in members if member] == [1] * 5
    assert [certificate.vote.phase for certificate in certificates] == list(Phase)
    repliers = [f"judged by {reply.member}" for reply in certificates[0].replies]
    assert judgement == repliers[0]  # type: ignore[comparison-overlap]


def test_consensus_needs_somebody_who_replied_and_stands_behind_it() -> None:
    members = committee()
    for member in members:
        member.knows = False
    with pytest.raises(ConsensusError, match="no replier has verified"):
        committee_consensus(ballot(members))


@dataclass
class ScriptedRun:
    """A ledger and clients that note what is done to them."""

    committees: list[list[Scripted]]
    replies: int = 3
    done: list[str] = field(default_factory=list)

    @property
    def round(self) -> int:
        return 1

    @property
    def seed(self) -> Digest:
        return SEED

    @property
    def finished(self) -> bool:
        return not self.committees

    def participants(self) -> Participants:
        seats = tuple(member.client for member in self.committees[0])
        return Participants(seats, (ClientId(1), ClientId(2)), frozenset())

    def base(self) -> Digest:
        return BASE

    def train(self, round_number: int, active: Sequence[ClientId]) -> None:
        self.done.append(f"train {round_number} {len(active)}")

    def members(self) -> Sequence[Scripted]:
        return self.committees[0]

    def decide(
        self, judgement: Judgement, certificates: tuple[QuorumCertificate, QuorumCertificate]
    ) -> None:
        self.done.append(f"decide {judgement is not None} {len(certificates)}")
        self.committees.pop(0)

    def abandon(self) -> None:
        self.done.append("abandon")
        self.committees.pop(0)


def test_training_runs_to_the_last_round_and_abandons_undecided() -> None:
    mute = committee()
    for member in mute:
        member.requests = {(p, view): () for p in Phase for view in range(MAX_VIEWS)}
    run = ScriptedRun([committee(), mute, committee()])
    training(run, run, lambda vote: vote.signature == AGREED)
    decided, abandoned = ["train 1 7", "decide True 2"], ["train 1 7", "abandon"]
    assert run.done == decided + abandoned + decided
