"""Sampling from a seed: pencil examples over published hash functions, then what always holds."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol import sampling
from ledger.protocol.encoding import keccak256
from ledger.protocol.types import ClientId, Digest
from tests.protocol.support import SEED, digests, ids

# SHAKE-256(32 zero bytes ‖ "sample"): the keys of clients 0 to 5 begin e9, 11, d1, 54, 7d, ae.


def test_the_smallest_keys_train_in_ascending_client_order() -> None:
    assert sampling.sample_trainers(SEED, 6, (), 3) == ids(1, 3, 4)


def test_members_are_passed_over() -> None:
    assert sampling.sample_trainers(SEED, 6, ids(1, 4), 3) == ids(2, 3, 5)


def test_more_trainers_than_clients_outside_the_committee_are_refused() -> None:
    assert sampling.sample_trainers(SEED, 6, ids(1, 4), 4) == ids(0, 2, 3, 5)
    with pytest.raises(ValueError, match="4 clients outside the committee are fewer than 5"):
        sampling.sample_trainers(SEED, 6, ids(1, 4), 5)


def test_the_first_committee_is_in_key_order_of_another_stream() -> None:
    stream = hashlib.shake_256(SEED + b"committee").digest(48)
    keys = [stream[8 * client : 8 * client + 8] for client in range(6)]
    by_key = sorted(range(6), key=keys.__getitem__)
    assert by_key == [5, 2, 4, 0, 1, 3]
    assert sampling.first_committee(SEED, 6, 3) == ids(5, 2, 4)


def test_a_committee_is_redrawn_by_hash_without_repetition() -> None:
    # keccak256(zeros ‖ u32 j) mod 5 for j = 0 .. 7 is 0, 0, 4, 4, 2, 0, 2, 4.
    draws = [int.from_bytes(keccak256(SEED + j.to_bytes(4))) % 5 for j in range(8)]
    assert draws == [0, 0, 4, 4, 2, 0, 2, 4]
    assert sampling.redrawn_committee(SEED, 5, 3, ()) == ids(0, 4, 2)
    assert sampling.redrawn_committee(SEED, 5, 2, ids(4)) == ids(0, 2)


def test_a_committee_that_cannot_be_filled_stays_short() -> None:
    assert set(sampling.redrawn_committee(SEED, 4, 3, ids(1, 2))) == set(ids(0, 3))


def test_a_clients_batch_order_has_a_seed_of_its_own() -> None:
    assert (
        sampling.training_seed(SEED, ClientId(1))
        == hashlib.sha256(bytes(32) + b"\0\0\0\1").digest()
    )
    assert sampling.training_seed(SEED, ClientId(1)) != sampling.training_seed(SEED, ClientId(2))


@given(seed=digests, clients=st.integers(1, 60), data=st.data())
def test_a_sample_is_ascending_distinct_and_never_of_the_committee(
    seed: Digest, clients: int, data: st.DataObject
) -> None:
    committee = data.draw(st.sets(st.integers(0, clients - 1).map(ClientId)))
    trainers = data.draw(st.integers(0, clients - len(committee)))
    sample = sampling.sample_trainers(seed, clients, committee, trainers)
    assert len(sample) == trainers
    assert list(sample) == sorted(set(sample))
    assert set(sample) <= set(range(clients)) - committee


@given(seed=digests, clients=st.integers(2, 60), data=st.data())
def test_a_smaller_sample_is_part_of_a_larger_one(
    seed: Digest, clients: int, data: st.DataObject
) -> None:
    larger = data.draw(st.integers(1, clients))
    smaller = data.draw(st.integers(0, larger))
    part = sampling.sample_trainers(seed, clients, (), smaller)
    assert set(part) <= set(sampling.sample_trainers(seed, clients, (), larger))


@given(seed=digests, clients=st.integers(3, 60), data=st.data())
def test_a_redrawn_committee_is_distinct_and_of_those_not_banned(
    seed: Digest, clients: int, data: st.DataObject
) -> None:
    banned = data.draw(st.sets(st.integers(0, clients - 1).map(ClientId), max_size=clients - 3))
    committee = sampling.redrawn_committee(seed, clients, 3, banned)
    assert len(set(committee)) == len(committee) == 3
    assert not banned & set(committee)
