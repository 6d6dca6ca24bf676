"""Ranking and the three selection strategies."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol.encoding import float_bits, word_client, word_distance
from ledger.protocol.errors import EncodingError
from ledger.protocol.selection import MILLION, accepted_size, rank, rounded_share, select
from ledger.protocol.types import ClientId, Strategy
from tests.protocol.support import client_ids, distances, ids

FIVE = rank([(ClientId(c), d) for c, d in ((7, 4.0), (2, 1.0), (9, 1.0), (4, 3.0), (0, 2.0))])
rankings = st.dictionaries(client_ids, distances, min_size=1, max_size=12)


def test_the_nearest_comes_first_and_ties_go_by_client() -> None:
    assert [word_client(word) for word in FIVE] == [2, 9, 0, 4, 7]
    assert [word_distance(word) for word in FIVE] == [1.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("distance", [-1.0, -0.0, float("inf"), float("nan")])
def test_what_is_no_distance_is_not_ranked(distance: float) -> None:
    with pytest.raises(EncodingError):
        rank([(ClientId(1), distance)])


def test_strategy_one_takes_the_nearest() -> None:
    assert select(FIVE, Strategy.NEAREST, 2, 0) == ids(2, 9)


def test_strategy_two_takes_the_farthest_still_in_ranking_order() -> None:
    assert select(FIVE, Strategy.FARTHEST, 2, 0) == ids(4, 7)


def test_strategy_three_takes_all_up_to_and_at_the_threshold() -> None:
    assert select(FIVE, Strategy.WITHIN_SPREAD, 1, float_bits(3.0)) == ids(2, 9, 0, 4)
    assert select(FIVE, Strategy.WITHIN_SPREAD, 1, float_bits(3.0) - 1) == ids(2, 9, 0)


def test_strategy_three_takes_the_m_nearest_where_nobody_is_near() -> None:
    assert select(FIVE, Strategy.WITHIN_SPREAD, 2, float_bits(0.5)) == ids(2, 9)


@pytest.mark.parametrize("strategy", [Strategy.NEAREST, Strategy.FARTHEST])
def test_all_can_be_accepted(strategy: Strategy) -> None:
    assert select(FIVE, strategy, 5, 0) == ids(2, 9, 0, 4, 7)


def test_a_share_of_one_half_is_rounded_up() -> None:
    assert rounded_share(500_000, 5) == 3  # 2.5
    assert rounded_share(499_999, 5) == 2  # 2.499995
    assert rounded_share(100_000, 4) == 0  # 0.4


def test_at_least_one_update_is_accepted() -> None:
    assert accepted_size(100_000, 4) == 1
    assert accepted_size(0, 100) == 1
    assert accepted_size(MILLION, 100) == 100


@given(share=st.integers(0, MILLION), whole=st.integers(0, 100_000))
def test_a_share_is_rounded_as_decimal_arithmetic_does(share: int, whole: int) -> None:
    exact = Decimal(share) * whole / MILLION
    assert rounded_share(share, whole) == int(exact.quantize(Decimal(1), ROUND_HALF_UP))


@given(share=st.integers(0, MILLION), trainers=st.integers(1, 256))
def test_never_more_are_accepted_than_train(share: int, trainers: int) -> None:
    assert 1 <= accepted_size(share, trainers) <= trainers


@given(trainers=rankings)
def test_a_ranking_is_strictly_increasing_and_sorted_by_distance_then_client(
    trainers: dict[ClientId, float],
) -> None:
    ranking = rank(trainers.items())
    assert list(ranking) == sorted(set(ranking))
    assert ranking == rank(reversed(trainers.items()))
    expected = sorted((distance, client) for client, distance in trainers.items())
    assert [(word_distance(word), word_client(word)) for word in ranking] == expected


@given(trainers=rankings, data=st.data())
def test_the_three_strategies_take_a_prefix_a_suffix_and_a_neighbourhood(
    trainers: dict[ClientId, float], data: st.DataObject
) -> None:
    ranking = rank(trainers.items())
    clients = tuple(word_client(word) for word in ranking)
    size = data.draw(st.integers(1, len(ranking)))
    threshold = data.draw(st.sampled_from(list(trainers.values())) | distances)
    assert select(ranking, Strategy.NEAREST, size, 0) == clients[:size]
    assert select(ranking, Strategy.FARTHEST, size, 0) == clients[-size:]
    near = tuple(client for client in clients if trainers[client] <= threshold)
    found = select(ranking, Strategy.WITHIN_SPREAD, size, float_bits(threshold))
    assert found == (near or clients[:size])
