"""The ranking of the trainers, and the election from its middle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol.encoding import word_client, word_distance
from ledger.protocol.errors import EncodingError
from ledger.protocol.ranking import elect, rank, score
from ledger.protocol.types import ClientId
from tests.protocol.support import client_ids, distances
from tests.support.keys import ids

FIVE = rank([(ClientId(c), d) for c, d in ((7, 4.0), (2, 1.0), (9, 1.0), (4, 3.0), (0, 2.0))])
rankings = st.dictionaries(client_ids, distances, min_size=1, max_size=12)


def test_the_nearest_comes_first_and_ties_go_by_client() -> None:
    assert [word_client(word) for word in FIVE] == [2, 9, 0, 4, 7]
    assert [word_distance(word) for word in FIVE] == [1.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("distance", [-1.0, -0.0, float("inf"), float("nan")])
def test_what_is_no_distance_is_not_ranked(distance: float) -> None:
    assert rank([(ClientId(1), 0.0)]) == (1,)
    with pytest.raises(EncodingError):
        rank([(ClientId(1), distance)])


def test_the_papers_score_is_the_inverse_distance() -> None:
    assert score(4.0) == 0.25
    assert score(0.0) == float("inf")


@given(trainers=rankings)
def test_a_ranking_is_sorted_by_distance_then_client(
    trainers: dict[ClientId, float],
) -> None:
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
    assert elect(ranking(trainers), members) == ids(*elected)


def test_fewer_ranked_than_places_is_refused() -> None:
    with pytest.raises(ValueError, match="2 ranked clients cannot fill 3 places"):
        elect(ranking(2), 3)


@given(members=st.integers(1, 20), more=st.integers(0, 40))
def test_as_many_are_nearer_as_farther_or_one_fewer(members: int, more: int) -> None:
    elected = elect(ranking(members + more), members)
    nearer, farther = elected[0] - 10, 10 + members + more - 1 - elected[-1]
    assert len(elected) == members
    assert list(elected) == list(range(elected[0], elected[-1] + 1))
    assert farther - nearer in {0, 1}
