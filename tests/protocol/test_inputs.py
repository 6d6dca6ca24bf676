"""Where a round's inputs end, who takes part, and what was published."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol.encoding import commitments_chain, sha256, vector_bytes
from ledger.protocol.inputs import (
    Evidence,
    Participants,
    RoundClosing,
    needs_displacement,
    participants_of,
    round_closing,
)
from ledger.protocol.ledger_state import MinedCommitment
from ledger.protocol.payloads import Q8, Payload
from ledger.protocol.types import ClientId
from tests.protocol.support import PENCIL, SEED, f32, registry_of
from tests.support.keys import ids


def test_members_and_trainers_are_active_and_banned_are_not_expected() -> None:
    found = Participants(ids(7, 2, 5), ids(1, 3), frozenset(ids(2)))
    assert found.active == ids(1, 2, 3, 5, 7)
    assert found.members == ids(7, 5)
    assert found.expected == {1, 3, 5, 7}


def test_trainers_are_sampled_outside_committee_and_bans() -> None:
    parameters = replace(PENCIL, clients=12, active_ppm=750_000)
    registry = list(registry_of(12))
    found = participants_of(parameters, registry, 4, SEED, ids(0, 1, 2))
    assert len(found.trainers) == 6
    assert not found.banned
    out = found.trainers[0]
    for client in (out, ClientId(1)):
        registry[client] = replace(registry[client], banned_in=3)
    again = participants_of(parameters, registry, 4, SEED, ids(0, 1, 2))
    assert out not in again.trainers
    assert set(found.trainers) - {out} < set(again.trainers)
    assert (again.committee, again.banned) == (ids(0, 1, 2), frozenset(ids(1)))


def test_a_client_banned_within_a_round_still_takes_part() -> None:
    registry = list(registry_of(9))
    fresh = participants_of(PENCIL, registry, 4, SEED, ids(0, 1, 2))
    registry[1] = registry[5] = replace(registry[5], banned_in=4)
    assert participants_of(PENCIL, registry, 4, SEED, ids(0, 1, 2)) == fresh
    later = participants_of(PENCIL, registry, 5, SEED, ids(0, 1, 2))
    assert later.banned == {1}
    assert 5 not in later.trainers


GOOD, SHORT = vector_bytes(f32(1.0, 2.0)), vector_bytes(f32(1.0))
PAYLOADS = {
    ClientId(1): Payload.of(GOOD),
    ClientId(2): Payload.of(SHORT),
    ClientId(3): Payload.of(vector_bytes(f32(1.0, np.nan))),
}


def test_a_payload_of_another_length_or_not_finite_is_malformed() -> None:
    updates = Evidence(f32(0.0, 0.0), PAYLOADS, {}).updates
    assert {client for client, update in updates.items() if update is None} == {2, 3}
    found = updates[ClientId(1)]
    assert found is not None
    assert found.tolist() == [1.0, 2.0]


def test_other_vectors_leave_the_updates_as_they_were_read() -> None:
    evidence = Evidence(f32(0.0, 0.0), PAYLOADS, {})
    other = evidence.with_vectors({sha256(b"x"): b"x"})
    assert other.updates is evidence.updates
    assert other.vectors == {sha256(b"x"): b"x"}
    assert not evidence.vectors


def test_more_payloads_leave_existing_updates_unchanged() -> None:
    evidence = Evidence(f32(0.0, 0.0), PAYLOADS, {})
    more = evidence.with_payloads({ClientId(4): Payload.of(vector_bytes(f32(3.0, 4.0)))})
    assert more.updates[ClientId(1)] is evidence.updates[ClientId(1)]
    added = more.updates[ClientId(4)]
    assert added is not None
    assert added.tolist() == [3.0, 4.0]
    assert more.payloads.keys() == more.updates.keys() == {1, 2, 3, 4}
    assert evidence.payloads.keys() == evidence.updates.keys() == {1, 2, 3}


def test_an_update_lies_where_its_payload_does() -> None:
    row = f32(1.0, 2.0)
    payload = Payload.of(row.data)
    update = Evidence(f32(0.0, 0.0), {ClientId(1): payload}, {}).updates[ClientId(1)]
    assert update is not None
    assert np.shares_memory(update, row)
    assert payload.digest == sha256(GOOD)
    assert payload.size == 8


def test_a_payload_is_read_in_the_run_s_form() -> None:
    payload = Q8.payload(f32(1.0, 0.25))
    one = {ClientId(1): replace(payload, update=None)}
    read = Evidence(f32(0.0, 0.0), one, {}, form=Q8).updates[ClientId(1)]
    assert read is not None
    assert read.tolist() == [1.0, 0.25]
    assert Evidence(f32(0.0, 0.0), one, {}).updates[ClientId(1)] is None


def test_a_payload_that_is_decoded_is_not_decoded_again() -> None:
    payload = Q8.payload(f32(1.0, 0.25))
    updates = Evidence(f32(0.0, 0.0), {ClientId(1): payload}, {}, form=Q8).updates
    assert updates[ClientId(1)] is payload.update


def test_without_a_model_the_dimension_gives_the_length() -> None:
    updates = Evidence(None, PAYLOADS, {}, dimension=2).updates
    assert {client for client, update in updates.items() if update is None} == {2, 3}
    assert Evidence(f32(0.0, 0.0), PAYLOADS, {}).dimension == 2


@pytest.mark.parametrize("dimension", [1, 3])
def test_a_dimension_that_is_not_the_models_is_a_mistake(dimension: int) -> None:
    with pytest.raises(ValueError, match="a model of 2 numbers"):
        Evidence(f32(0.0, 0.0), PAYLOADS, {}, dimension=dimension)
    with pytest.raises(ValueError, match="d = 0"):
        Evidence(None, PAYLOADS, {})


def test_a_travel_is_as_long_as_the_model() -> None:
    assert Evidence(f32(0.0, 0.0), {}, {}, displacement=f32(1.0, 2.0)).dimension == 2
    with pytest.raises(ValueError, match="a displacement of other than d = 2 numbers"):
        Evidence(f32(0.0, 0.0), {}, {}, displacement=f32(1.0))


def test_only_strategy_three_needs_the_displacement_and_not_in_round_one() -> None:
    ours = replace(PENCIL, strategy=3)
    needed = [
        (p.strategy, t) for p in (PENCIL, ours) for t in (1, 2, 9) if needs_displacement(p, t)
    ]
    assert needed == [(3, 2), (3, 9)]


OPENED, WINDOW = 100, 4


def mined(block: int, client: int) -> MinedCommitment:
    return MinedCommitment(block, ClientId(client), sha256(b"%d" % client))


def closing(*commitments: MinedCommitment, final: int = 200) -> RoundClosing | None:
    """Return the closing of a round in which clients 1, 2 and 3 are active."""
    return round_closing(OPENED + WINDOW, ids(1, 2, 3), final, commitments)


def test_it_is_open_while_the_closing_block_is_not_final() -> None:
    everyone = (mined(101, 1), mined(101, 2), mined(103, 3))
    assert closing(*everyone, final=102) is None
    assert closing(*everyone, final=103) is not None
    assert closing(mined(101, 1), final=103) is None
    assert closing(mined(101, 1), final=104) is not None


def test_without_a_commitment_the_base_is_zero() -> None:
    assert closing() == RoundClosing(104, commitments_chain([]), {})


entries = st.lists(st.tuples(st.integers(101, 104), st.integers(0, 6)), max_size=8)


@given(drawn=entries, strays=entries, final=st.integers(101, 110))
def test_neither_strays_nor_time_move_what_is_closed(
    drawn: list[tuple[int, int]], strays: list[tuple[int, int]], final: int
) -> None:
    def chain(entries: list[tuple[int, int]]) -> list[MinedCommitment]:
        once = {client: block for block, client in sorted(entries, reverse=True)}
        return [mined(block, client) for client, block in sorted(once.items(), key=lambda x: x[1])]

    # Clients 4 and up are not active: wherever they commit, the closing block is the same.
    found = closing(*chain(drawn), final=final)
    others = [(block, 10 + client) for block, client in strays]
    again = closing(*chain(drawn + others), final=final)
    assert (found is None) == (again is None)
    if found is None or again is None:
        return
    assert found.block == again.block <= final
    assert {c for c in again.commitments if c < 10} == set(found.commitments)
    later = closing(*chain(drawn), final=final + 1)
    assert later == found


def test_where_somebody_is_late_the_window_closes_it() -> None:
    found = closing(mined(101, 2), mined(101, 1))
    assert found is not None
    assert (found.block, set(found.commitments)) == (104, {1, 2})


def test_fewer_payloads_leave_the_updates_that_remain_as_they_are() -> None:
    evidence = Evidence(f32(0.0, 0.0), PAYLOADS, {})
    fewer = evidence.without({ClientId(2), ClientId(9)})
    assert fewer.updates[ClientId(1)] is evidence.updates[ClientId(1)]
    assert fewer.payloads.keys() == fewer.updates.keys() == {1, 3}
