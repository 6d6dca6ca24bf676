"""The ranking of the trainers, what strategies accept of it, and both kinds of election."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol.encoding import float_bits, keccak256, word_client, word_distance
from ledger.protocol.rules.selection import (
    RIGHT_ANGLE_BITS,
    SELECTIONS,
    below_two,
    candidates,
    elect,
    farthest,
    mean_distances,
    nearest,
    rank,
)
from ledger.protocol.types import AcceptanceForm, ClientId, Digest
from tests.protocol.support import client_ids, distances
from tests.support.keys import ids

SEED = Digest(b"\x4d" * 32)
rankings = st.dictionaries(client_ids, distances, min_size=1, max_size=12)

moderate = st.floats(0, 1e6).map(abs)


@given(trainers=rankings)
def test_a_ranking_is_sorted_by_distance_then_client(trainers: dict[ClientId, float]) -> None:
    ranking = rank(trainers.items())
    assert list(ranking) == sorted(set(ranking))
    assert ranking == rank(reversed(trainers.items()))
    expected = sorted((distance, client) for client, distance in trainers.items())
    assert [(word_distance(word), word_client(word)) for word in ranking] == expected


def ranking(trainers: int) -> tuple[int, ...]:
    """Return a ranking in which client 10 + i has place i."""
    return rank((ClientId(10 + place), float(place)) for place in range(trainers))


@pytest.mark.parametrize(
    ("trainers", "members", "elected"),
    [
        (7, 3, (12, 13, 14)),  # two on either side
        (6, 3, (11, 12, 13)),  # the odd one is left at the far end
        (4, 3, (10, 11, 12)),
        (3, 3, (10, 11, 12)),
    ],
)
def test_those_around_the_middle_are_elected(
    trainers: int, members: int, elected: tuple[int, ...]
) -> None:
    stand = candidates(ranking(trainers), ids(10), members, by_lot=False)
    assert stand == ids(*elected)
    assert elect(stand, members, SEED) == stand, "nobody is left to draw among"


@pytest.mark.parametrize("by_lot", [False, True])
def test_fewer_ranked_than_places_is_refused(*, by_lot: bool) -> None:
    with pytest.raises(ValueError, match="2 ranked clients cannot fill 3 places"):
        candidates(ranking(2), ids(10), 3, by_lot=by_lot)


@pytest.mark.parametrize(
    ("accepted", "stand"),
    [
        (range(10, 15), range(10, 15)),
        (range(10, 13), range(10, 13)),
        (range(10, 12), range(10, 13)),  # too few: the next in the ranking stands too
    ],
)
def test_the_accepted_are_drawn_among_with_their_neighbours_if_they_are_too_few(
    accepted: range, stand: range
) -> None:
    assert candidates(ranking(7), ids(*accepted), 3, by_lot=True) == ids(*stand)


@given(
    stand=st.lists(client_ids, min_size=1, max_size=40, unique=True),
    members=st.integers(1, 40),
    seed=st.binary(min_size=32, max_size=32).map(Digest),
)
def test_a_lot_elects_as_many_as_are_needed_in_their_order(
    stand: list[ClientId], members: int, seed: Digest
) -> None:
    members = min(members, len(stand))
    elected = elect(stand, members, seed)
    assert len(elected) == members
    assert list(elected) == [client for client in stand if client in elected]


def test_every_pair_is_drawn_equally_often() -> None:
    seeds = [keccak256(bytes([high, low])) for high in range(24) for low in range(250)]
    pairs = Counter(elect(ids(0, 1, 2, 3), 2, seed) for seed in seeds)
    assert len(pairs) == 6
    # 6,000 draws of one in six: 1,000 with a deviation of 29; the seeds are fixed.
    assert max(abs(count - 1_000) for count in pairs.values()) < 90


def test_without_a_member_there_is_no_mean() -> None:
    with pytest.raises(ValueError, match="no member's distances"):
        mean_distances(np.empty((0, 3)))
    assert mean_distances(np.ones((1, 3))).tolist() == [1.0, 1.0, 1.0]


@given(rows=st.lists(st.lists(moderate, min_size=4, max_size=4), min_size=1, max_size=7))
def test_the_mean_is_summed_member_by_member(rows: list[list[float]]) -> None:
    expected = []
    for column in zip(*rows, strict=True):
        total = 0.0
        for value in column:
            total += value
        expected.append(total / len(rows))
    assert mean_distances(np.array(rows)).tolist() == expected


@given(distances=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=8))
def test_the_inverse_mean_is_the_papers_score(distances: list[float]) -> None:
    found = 1 / mean_distances(np.array([[d] for d in distances]))[0]
    paper = Fraction(len(distances)) / sum(1 / (1 / Fraction(d)) for d in distances)
    # A handful of roundings, each at most 2^-53.
    assert found == pytest.approx(float(paper), rel=1e-14)


FIVE = rank([(ClientId(c), d) for c, d in ((7, 4.0), (2, 1.0), (9, 1.0), (4, 3.0), (0, 2.0))])


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
