"""Primaries, replies and certificates."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol.consensus import QuorumCertificate, primary_seat, replies_needed
from ledger.protocol.types import NO_DIGEST, Digest, Phase, Quorum, SignedVote, Vote, VoteKind
from tests.protocol.support import BASE, SEED, digests
from tests.support.keys import ids

committees = st.integers(3, 160)


@given(members=committees)
def test_the_papers_quorum_is_half_the_committee_and_one_more(members: int) -> None:
    assert replies_needed(members, Quorum.PAPER) == members // 2 + 1


@given(members=committees)
def test_two_byzantine_quorums_meet_in_an_honest_member(members: int) -> None:
    quorum, faulty = replies_needed(members, Quorum.BFT) + 1, (members - 1) // 3
    assert 2 * quorum - members >= faulty + 1
    assert members - faulty >= quorum, "the honest ones are enough"


@pytest.mark.parametrize("quorum", Quorum)
@given(members=committees)
def test_the_others_can_reach_a_quorum_and_two_quorums_meet(quorum: Quorum, members: int) -> None:
    replies = replies_needed(members, quorum)
    assert members // 2 <= replies <= members - 1
    assert 2 * (replies + 1) > members


@given(seed=digests, phase=st.sampled_from(Phase), members=st.integers(3, 20))
def test_every_member_is_primary_sooner_or_later(seed: Digest, phase: Phase, members: int) -> None:
    places = {primary_seat(seed, phase, view, members) for view in range(40 * members)}
    assert places == set(range(members))


def test_signers_are_places_not_clients() -> None:
    vote = Vote(VoteKind.REQUEST, 1, Phase.ELECTION, 0, BASE, SEED, NO_DIGEST)
    reply = replace(vote, kind=VoteKind.REPLY)
    committee = ids(40, 10, 30, 20)
    replies = tuple(SignedVote(member, reply, b"") for member in ids(10, 20))
    certificate = QuorumCertificate(SignedVote(committee[0], vote, b""), replies)
    assert certificate.signers(committee) == 0b1010
    assert certificate.vote == vote
