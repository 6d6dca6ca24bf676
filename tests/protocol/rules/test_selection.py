"""The three selection strategies."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol.encoding import float_bits, word_client
from ledger.protocol.ranking import rank
from ledger.protocol.rules.selection import (
    RIGHT_ANGLE_BITS,
    SELECTIONS,
    below_two,
    farthest,
    nearest,
)
from ledger.protocol.types import AcceptanceForm, ClientId
from tests.protocol.support import client_ids, distances
from tests.support.keys import ids

FIVE = rank([(ClientId(c), d) for c, d in ((7, 4.0), (2, 1.0), (9, 1.0), (4, 3.0), (0, 2.0))])
rankings = st.dictionaries(client_ids, distances, min_size=1, max_size=12)


def test_strategy_three_takes_all_below_two() -> None:
    assert below_two(FIVE, 1) == ids(2, 9)
    just_below = float_bits(2.0) - 1 << 32 | 0
    assert below_two((*FIVE[:2], just_below, *FIVE[3:]), 1) == ids(2, 9, 0)


def test_each_form_of_the_contract_selects() -> None:
    assert set(SELECTIONS) == set(AcceptanceForm)
    assert RIGHT_ANGLE_BITS == 0x4000_0000_0000_0000


@given(trainers=rankings, data=st.data())
def test_strategies_take_a_prefix_a_suffix_and_a_neighbourhood(
    trainers: dict[ClientId, float], data: st.DataObject
) -> None:
    ranking = rank(trainers.items())
    clients = tuple(word_client(word) for word in ranking)
    size = data.draw(st.integers(1, len(ranking)))
    assert nearest(ranking, size) == clients[:size]
    assert farthest(ranking, size) == clients[-size:]
    near = tuple(client for client in clients if trainers[client] < 2)
    assert below_two(ranking, size) == (near or clients[:size])
