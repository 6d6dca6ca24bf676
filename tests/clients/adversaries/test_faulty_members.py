"""Faults of members and trainers: who has them, what they publish, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.adversaries.faults import (
    MemberFault,
    TrainerFault,
    assign_faults,
    false_scores,
    faulty_payload,
    member_with,
)
from ledger.protocol.documents.envelope import PublishedScores
from ledger.protocol.documents.record import ScoreVector, decode_vector
from ledger.protocol.encoding import sha256, vector_bytes
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.ledger_state import RoundDecided
from ledger.protocol.payloads import Payload
from ledger.protocol.types import ClientId, RefusalReason
from tests.actors.support import PARAMETERS, Network, committee_of, play, signers

UPDATE = Payload.of(np.array([1.0, -2.0, 0.0, 4.0], dtype="<f4").tobytes())


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_faults_are_assigned_to_distinct_candidates() -> None:
    wanted = {MemberFault.SILENT: 2, MemberFault.FALSE_SCORES: 1}
    faults = assign_faults([4, 9, 6, 1], wanted, rng())
    assert list(faults) == sorted(faults)
    assert set(faults) <= {1, 4, 6, 9}
    assert sorted(faults.values()) == ["false-scores", "silent", "silent"]
    assert assign_faults([], {TrainerFault.SILENT: 0}, rng()) == {}


def test_more_faults_than_candidates_or_a_negative_number_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="3 faulty clients: at most 2"):
        assign_faults([0, 1], {MemberFault.EQUIVOCATING: 3}, rng())
    with pytest.raises(ConfigurationError, match="negative"):
        assign_faults([0, 1], {MemberFault.EQUIVOCATING: -1}, rng())


def test_false_scores_swap_nearest_and_farthest_and_move_a_mean() -> None:
    true = np.array([1.0, 4.0, 2.0, 3.0])
    lies = false_scores(true, rng())
    assert np.argsort(lies).tolist() == np.argsort(true)[::-1].tolist()
    assert 4 <= lies[0] <= 40
    members = np.stack([true, true, lies])
    assert np.argsort(members.mean(axis=0))[0] != 0
    assert np.argsort(np.median(members, axis=0)).tolist() == [0, 2, 3, 1]


@given(st.lists(st.floats(0, 1e30), max_size=20), st.integers(0, 2**32 - 1))
def test_false_scores_still_look_like_distances(true: list[float], seed: int) -> None:
    lies = false_scores(np.array(true), rng(seed))
    assert lies.shape == (len(true),)
    assert np.isfinite(lies).all()
    assert (lies >= 0).all()


def test_a_faulty_trainer_sends_nan_wrong_length_or_nothing() -> None:
    not_finite = faulty_payload(UPDATE, TrainerFault.NOT_FINITE)
    assert not_finite is not None
    assert np.isnan(np.frombuffer(not_finite.data, dtype="<f4")).all()
    assert not_finite.size == 16
    wrong_length = faulty_payload(UPDATE, TrainerFault.WRONG_LENGTH)
    assert wrong_length is not None
    assert wrong_length.data == UPDATE.data[:15]
    assert wrong_length.digest == sha256(UPDATE.data[:15])
    assert faulty_payload(UPDATE, TrainerFault.SILENT) is None


@pytest.mark.parametrize(
    "fault", [TrainerFault.LATE, TrainerFault.STRAY, TrainerFault.COPIED, TrainerFault.SELF_BAN]
)
def test_a_fault_outside_the_payload_leaves_it_unchanged(fault: TrainerFault) -> None:
    assert faulty_payload(UPDATE, fault) is UPDATE


def played(network: Network, faults: Mapping[int, MemberFault], favoured: int = 2) -> Network:
    """Play the open round, in which two trainers are favoured and lie far from everybody."""
    chosen = favoured_in(network, favoured)
    for client in chosen:
        far = np.full(PARAMETERS.dimension, -50, dtype=np.float32)
        network.payloads[1, client] = vector_bytes(far)
    network.close()
    members = committee_of(network, faults)
    for client, member in members.items():
        member.actor = member_with(member.fault, member.honest, signers()[client], chosen)
    play(network, members.values())
    return network


def favoured_in(network: Network, count: int = 2) -> frozenset[ClientId]:
    chain = network.chain.view()
    assert chain is not None
    return frozenset(chain.participants().trainers[:count])


def published(network: Network) -> dict[ClientId, list[ScoreVector]]:
    found: dict[ClientId, list[ScoreVector]] = {}
    for body in (envelope.body for envelope in network.board):
        if isinstance(body, PublishedScores):
            vector = decode_vector(body.vector)
            found.setdefault(vector.member, []).append(vector)
    return found


def decided(network: Network) -> RoundDecided:
    found = network.chain.decided(1)
    assert found is not None
    return found


def distances(vector: ScoreVector) -> dict[ClientId, float]:
    return dict(zip(vector.trainers, vector.distances.tolist(), strict=True))


def test_a_favouring_member_lowers_the_favoured_only() -> None:
    network, honest = Network(), Network()
    seat = network.chain.state.committee[0]
    chosen = favoured_in(network)
    (vector,) = published(played(network, {0: MemberFault.FAVOURING}))[seat]
    (true,) = published(played(honest, {}))[seat]
    assert {c for c, found in distances(vector).items() if found == 0} == chosen
    assert all(found > 1 for c, found in distances(true).items() if c in chosen)
    others = [c for c in vector.trainers if c not in chosen]
    assert [distances(vector)[c] for c in others] == [distances(true)[c] for c in others]
    assert vector.member_distances.tolist() == true.member_distances.tolist()


def test_colluding_members_publish_one_vector_of_near_and_far() -> None:
    network = Network()
    seats = network.chain.state.committee[:3]
    chosen = favoured_in(network)
    found = published(played(network, dict.fromkeys(range(3), MemberFault.COLLUDING)))
    for seat in seats:
        (vector,) = found[seat]
        assert distances(vector) == {c: 0.0 if c in chosen else 1e6 for c in vector.trainers}
    assert network.chain.decided(1) is None, "three of five false vectors leave no record"


@pytest.mark.parametrize("fault", [MemberFault.FAVOURING, MemberFault.COLLUDING])
def test_checked_favours_are_refused_and_name_their_member(fault: MemberFault) -> None:
    network = Network()
    chosen = favoured_in(network)
    played(network, {1: fault})
    (refused,) = network.record_of(decided(network)).refused
    assert refused.signed.scores.member == network.chain.blocks[0].state.committee[1]
    assert refused.reason is RefusalReason.FALSE_DISTANCE
    assert refused.client in chosen or fault is MemberFault.COLLUDING
    assert not chosen.intersection(decided(network).accepted)


def test_a_copying_member_waits_for_another_and_takes_its_distances() -> None:
    network = Network()
    copies, copied = network.chain.state.committee[0], network.chain.state.committee[1]
    found = published(played(network, {0: MemberFault.COPYING}))
    (vector,) = found[copies]
    others = [member for member in found if member != copies]
    first = min(others)
    (theirs,) = found[first]
    assert copied in others
    assert vector.distances.tolist() == theirs.distances.tolist()
    told = dict(zip(theirs.members, theirs.member_distances.tolist(), strict=True))
    own = dict(zip(vector.members, vector.member_distances.tolist(), strict=True))
    assert own[first] == told[copies], "the distance between the two is the same both ways"
    assert {c: d for c, d in own.items() if c != first} == {
        c: d for c, d in told.items() if c != copies
    }


def test_a_copy_is_refused_where_scores_are_checked() -> None:
    network = played(Network(), {2: MemberFault.COPYING})
    (refused,) = network.record_of(decided(network)).refused
    assert refused.reason is RefusalReason.FALSE_DISTANCE


def test_where_all_copy_nobody_scores_and_the_round_stays_open() -> None:
    network = played(Network(), dict.fromkeys(range(5), MemberFault.COPYING))
    assert published(network) == {}
    assert network.chain.state.round == 1
