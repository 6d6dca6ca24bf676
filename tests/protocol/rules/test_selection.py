"""The three selection strategies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol.encoding import float_bits, word_client
from ledger.protocol.ranking import rank
from ledger.protocol.rules.selection import (
    SELECTIONS,
    THRESHOLD_BITS,
    farthest,
    nearest,
    within_threshold,
)
from ledger.protocol.types import AcceptanceForm, ClientId
from tests.protocol.support import client_ids, distances
from tests.support.keys import ids

FIVE = rank([(ClientId(c), d) for c, d in ((7, 4.0), (2, 1.0), (9, 1.0), (4, 3.0), (0, 2.0))])
rankings = st.dictionaries(client_ids, distances, min_size=1, max_size=12)


def test_strategy_one_takes_the_nearest() -> None:
    assert nearest(FIVE, 2, 0) == ids(2, 9)


def test_strategy_two_takes_the_farthest_still_in_ranking_order() -> None:
    assert farthest(FIVE, 2, 0) == ids(4, 7)


def test_strategy_three_takes_all_up_to_and_at_the_threshold() -> None:
    assert within_threshold(FIVE, 1, float_bits(3.0)) == ids(2, 9, 0, 4)
    assert within_threshold(FIVE, 1, float_bits(3.0) - 1) == ids(2, 9, 0)


def test_strategy_three_takes_the_m_nearest_where_nobody_is_near() -> None:
    assert within_threshold(FIVE, 2, float_bits(0.5)) == ids(2, 9)


@pytest.mark.parametrize("form", SELECTIONS)
def test_all_can_be_accepted(form: AcceptanceForm) -> None:
    assert SELECTIONS[form](FIVE, 5, float_bits(4.0)) == ids(2, 9, 0, 4, 7)


def test_each_form_of_the_contract_selects() -> None:
    assert set(SELECTIONS) == set(AcceptanceForm)
    assert THRESHOLD_BITS == 0x3FFF_FFFF_FFFF_FFFF


@given(trainers=rankings, data=st.data())
def test_strategies_take_a_prefix_a_suffix_and_a_neighbourhood(
    trainers: dict[ClientId, float], data: st.DataObject
) -> None:
    ranking = rank(trainers.items())
    clients = tuple(word_client(word) for word in ranking)
    size = data.draw(st.integers(1, len(ranking)))
    threshold = data.draw(st.sampled_from(list(trainers.values())) | distances)
    assert nearest(ranking, size, 0) == clients[:size]
    assert farthest(ranking, size, 0) == clients[-size:]
    near = tuple(client for client in clients if trainers[client] <= threshold)
    assert within_threshold(ranking, size, float_bits(threshold)) == (near or clients[:size])
