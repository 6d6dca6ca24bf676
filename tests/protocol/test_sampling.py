"""Trainers, committees, primaries and replies: what follows from a seed."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol import inputs
from ledger.protocol.encoding import keccak256
from ledger.protocol.inputs import primary_seat
from ledger.protocol.ledger_state import QuorumCertificate
from ledger.protocol.parameters import replies_needed
from ledger.protocol.types import (
    NO_DIGEST,
    ClientId,
    Digest,
    Phase,
    Quorum,
    SignedVote,
    Vote,
    VoteKind,
)
from tests.protocol.support import BASE, SEED, digests
from tests.support.keys import ids

# SHAKE-256(32 zero bytes ‖ "sample"): the keys of clients 0 to 5 begin e9, 11, d1, 54, 7d, ae.


def test_after_4096_draws_nobody_is_drawn_any_more() -> None:
    # Client 3 alone is left of 50,000: it comes up in about one draw in 50,000.
    draws = [int.from_bytes(keccak256(SEED + j.to_bytes(4))) % 50_000 for j in range(4_097)]
    last, beyond = draws[4_095], draws[4_096]
    assert draws.index(last) == 4_095
    assert beyond not in draws[:4_096]
    everyone = set(map(ClientId, range(50_000)))
    assert inputs.drawn_committee(SEED, 50_000, 1, everyone - {last}) == (last,)
    assert inputs.drawn_committee(SEED, 50_000, 1, everyone - {beyond}) == ()


def test_a_clients_batch_order_has_a_seed_of_its_own() -> None:
    joined = hashlib.sha256(bytes(32) + b"\0\0\0\1").digest()
    assert inputs.training_seed(SEED, ClientId(1)) == joined
    assert inputs.training_seed(SEED, ClientId(1)) != inputs.training_seed(SEED, ClientId(2))


@given(seed=digests, clients=st.integers(1, 60), data=st.data())
def test_a_sample_is_ascending_distinct_and_never_of_the_excluded(
    seed: Digest, clients: int, data: st.DataObject
) -> None:
    excluded = data.draw(st.sets(st.integers(0, clients - 1).map(ClientId)))
    trainers = data.draw(st.integers(0, clients))
    sample = inputs.sample_trainers(seed, clients, excluded, trainers)
    assert len(sample) == min(trainers, clients - len(excluded))
    assert list(sample) == sorted(set(sample))
    assert set(sample) <= set(range(clients)) - excluded


@given(seed=digests, clients=st.integers(2, 60), data=st.data())
def test_a_smaller_sample_is_part_of_a_larger_one(
    seed: Digest, clients: int, data: st.DataObject
) -> None:
    larger = data.draw(st.integers(1, clients))
    smaller = data.draw(st.integers(0, larger))
    part = inputs.sample_trainers(seed, clients, (), smaller)
    assert set(part) <= set(inputs.sample_trainers(seed, clients, (), larger))


@given(seed=digests, clients=st.integers(3, 60), data=st.data())
def test_a_drawn_committee_is_distinct_and_of_those_not_banned(
    seed: Digest, clients: int, data: st.DataObject
) -> None:
    banned = data.draw(st.sets(st.integers(0, clients - 1).map(ClientId), max_size=clients - 3))
    committee = inputs.drawn_committee(seed, clients, 3, banned)
    assert len(set(committee)) == len(committee) == 3
    assert not banned & set(committee)


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
