"""The election strategy: the middle of the ranking."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol.election import elect
from ledger.protocol.ranking import rank
from ledger.protocol.types import ClientId
from tests.support.keys import ids


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
