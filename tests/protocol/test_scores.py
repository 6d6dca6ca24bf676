"""Which signed score vectors count: each reason by itself, then the lowest of several."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ledger.protocol.documents.record import ScoreVector, encode_vector
from ledger.protocol.encoding import set_digest
from ledger.protocol.inputs import Evidence
from ledger.protocol.types import ClientId, RefusalReason
from ledger.protocol.validation import (
    COUNTING_MARGINS,
    PRIMARY_MARGINS,
    REFUSAL_MARGINS,
    DistanceTable,
    ScoreFault,
    find_score_fault,
    parse_vector,
)
from tests.protocol.support import small_round
from tests.support.keys import ids
from tests.support.rounds import ClosedRound

# Members 0, 1, 2 and trainers 3 to 8, each with its index as its update.
ROUND = small_round({i: float(i + 1) for i in range(9)})
DIRECTION = small_round({0: 0.0, **{i: float(i) for i in range(1, 9)}}, strategy=3, travel=[0.0])


def table_of(told: ClosedRound) -> DistanceTable:
    return DistanceTable(
        told.inputs, usable(told.evidence), displacement=told.evidence.displacement
    )


def usable(evidence: Evidence) -> dict[ClientId, NDArray[np.float32]]:
    return {client: update for client, update in evidence.updates.items() if update is not None}


def fault(
    told: ClosedRound,
    vector: ScoreVector | bytes,
    member: int = 0,
    *,
    margins: float = PRIMARY_MARGINS,
    checked: bool = True,
) -> ScoreFault | None:
    """Return why a vector that the member signed for all usable updates does not count."""
    data = vector if isinstance(vector, bytes) else encode_vector(vector)
    claim = told.claim(member, data).scores
    table = table_of(told) if checked else None
    return find_score_fault(told.inputs, told.usable, claim, parse_vector(data), table, margins)


def test_a_table_has_the_distances_of_all_to_the_members() -> None:
    table = table_of(ROUND)
    assert table.between(ClientId(8), ClientId(0)) == 64.0
    assert table.between(ClientId(0), ClientId(2)) == 4.0
    assert table.can_score(ClientId(2))
    assert not table.can_score(ClientId(3)), "a trainer scores nobody"


@given(st.permutations(range(9)), st.integers(0, 9), st.sampled_from(range(3)))
def test_a_row_is_the_distances_one_by_one(order: list[int], count: int, member: int) -> None:
    table, clients = table_of(ROUND), ids(*order[:count])
    for _ in range(2):  # places are remembered
        row = table.row(ClientId(member), clients)
        assert row.tolist() == [table.between(client, ClientId(member)) for client in clients]
        assert row.dtype == np.float64


@given(st.lists(st.sampled_from([0.0, 1e-10, -1e-10, 1e-8, -0.5, 3.0]), min_size=8, max_size=8))
def test_the_first_false_distance_is_the_one_that_a_loop_finds(off: list[float]) -> None:
    true = ROUND.vector(0)
    distances = np.abs(true.distances * (1 + np.array(off[:6])))
    others = np.abs(true.member_distances * (1 + np.array(off[6:])))
    vector = replace(true, distances=distances, member_distances=others)
    table = table_of(ROUND)
    false = [
        client
        for client, claim in vector.claims().items()
        if table.is_off(client, ClientId(0), claim, PRIMARY_MARGINS)
    ]
    expected = ScoreFault(RefusalReason.FALSE_DISTANCE, false[0]) if false else None
    assert fault(ROUND, vector) == expected


def test_a_table_computes_nothing_before_it_is_asked() -> None:
    def never(*_: object) -> NDArray[np.float64]:
        raise AssertionError("computed")

    table = DistanceTable(ROUND.inputs, usable(ROUND.evidence), never)
    assert table.can_score(ClientId(0))
    with pytest.raises(AssertionError, match="computed"):
        table.between(ClientId(3), ClientId(0))


def test_three_is_also_a_member_with_zeros_under_direction() -> None:
    zeros = replace(
        DIRECTION.vector(1),
        member=ClientId(0),
        distances=np.full(6, 4.0),
        members=ids(1, 2),
        member_distances=np.full(2, 4.0),
    )
    assert fault(DIRECTION, zeros) == ScoreFault(RefusalReason.NO_USABLE_UPDATE)
    assert fault(DIRECTION, DIRECTION.vector(1), 1) is None
    squared = small_round({0: 0.0, **{i: float(i) for i in range(1, 9)}})
    assert fault(squared, squared.vector(0)) is None


@pytest.mark.parametrize(
    "change",
    [
        {"trainers": ids(3, 4, 5, 6, 7), "distances": np.ones(5)},
        {"trainers": ids(3, 4, 5, 6, 7, 9)},
        {"trainers": ids(2, 3, 4, 5, 6, 7, 8), "distances": np.ones(7)},
        {"members": ids(1), "member_distances": np.ones(1)},
        {"members": ids(0, 1, 2), "member_distances": np.ones(3)},
        {"members": ids(), "member_distances": np.ones(0)},
    ],
)
def test_four_is_a_vector_of_clients_not_claimed(change: dict[str, object]) -> None:
    vector = replace(ROUND.vector(0), **change)  # type: ignore[arg-type]
    assert fault(ROUND, vector) == ScoreFault(RefusalReason.OTHER_CLIENTS)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, -1.0, -0.0, np.nextafter(1e300, 2e300)])
@pytest.mark.parametrize("field", ["distances", "member_distances"])
def test_five_is_a_distance_out_of_range(value: float, field: str) -> None:
    vector = ROUND.vector(0)
    values = getattr(vector, field).copy()
    values[-1] = value
    assert fault(ROUND, replace(vector, **{field: values})) == ScoreFault(
        RefusalReason.OUT_OF_RANGE
    )
    values[-1] = 1e300
    largest = fault(ROUND, replace(vector, **{field: values}), checked=False)
    assert largest is None, "the largest that counts, if nobody computes it again"


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("margins", [REFUSAL_MARGINS, PRIMARY_MARGINS, COUNTING_MARGINS])
def test_a_distance_that_lies_on_the_line_is_false(sign: int, margins: float) -> None:
    # 30000² + 10000² = 10⁹, of which the margin is 1.0 exactly.
    told = small_round({3: (30_000.0, 10_000.0)}, model=(0.0, 0.0))
    vector = told.vector(0)
    assert (vector.distances[0], 1e-9 * vector.distances[0]) == (1e9, 1.0)
    on_the_line, within = (
        replace(vector, distances=np.array([1e9 + sign * off, *vector.distances[1:]]))
        for off in (margins, margins - 0.25)
    )
    assert fault(told, within, margins=margins) is None
    assert fault(told, on_the_line, margins=margins) == ScoreFault(
        RefusalReason.FALSE_DISTANCE, ClientId(3)
    )


def test_at_no_distance_only_no_distance_is_true() -> None:
    # A margin of nothing: equal is true, the least number above it is false.
    told = small_round({0: 5.0, 3: 5.0})
    vector = told.vector(0)
    assert vector.distances[0] == 0.0
    assert fault(told, vector, margins=REFUSAL_MARGINS) is None
    least = replace(vector, distances=np.array([5e-324, *vector.distances[1:]]))
    for margins in (REFUSAL_MARGINS, PRIMARY_MARGINS, COUNTING_MARGINS):
        found = fault(told, least, margins=margins)
        assert found == ScoreFault(RefusalReason.FALSE_DISTANCE, ClientId(3))


def test_near_no_distance_of_direction_there_is_an_absolute_margin() -> None:
    # All pull the same way: c is the crowding 8 over 2.5 times the base 8, and so 1.
    told = small_round({0: 2.0, **dict.fromkeys(range(1, 9), 3.0)}, strategy=3, travel=[0.0])
    vector = told.vector(0)
    assert vector.distances[0] == 0.0
    for claim, true in ((1.4e-9, True), (1.6e-9, False)):
        claimed = replace(vector, distances=np.array([claim, *vector.distances[1:]]))
        assert (fault(told, claimed) is None) == true


def test_of_several_reasons_the_lowest_holds() -> None:
    worst = replace(
        DIRECTION.vector(1),
        round=9,
        member=ClientId(0),
        trainers=ids(3, 4),
        distances=np.array([np.nan, 1.0]),
        members=ids(1, 2),
    )
    assert fault(DIRECTION, worst) == ScoreFault(RefusalReason.OF_ANOTHER)
    worst = replace(worst, round=2)
    assert fault(DIRECTION, worst) == ScoreFault(RefusalReason.NO_USABLE_UPDATE)
    other = replace(worst, member=ClientId(1), members=ids(0, 2))
    assert fault(DIRECTION, other, 1) == ScoreFault(RefusalReason.OTHER_CLIENTS)
    ranged = replace(other, trainers=ids(*range(3, 9)), distances=np.full(6, np.nan))
    assert fault(DIRECTION, ranged, 1) == ScoreFault(RefusalReason.OUT_OF_RANGE)
    false = replace(ranged, distances=np.full(6, 3.5))
    assert fault(DIRECTION, false, 1) == ScoreFault(RefusalReason.FALSE_DISTANCE, ClientId(3))


def test_a_vector_for_fewer_updates_names_fewer() -> None:
    # A vector is for one set: what is wrong for all usable updates is right for those it names.
    fewer = ids(0, 1, 2, 3, 4)
    vector = ROUND.vector(0, fewer)
    data = encode_vector(vector)
    claim = replace(ROUND.claim(0, data).scores, clients=set_digest(fewer))
    assert (
        find_score_fault(ROUND.inputs, fewer, claim, vector, table_of(ROUND), PRIMARY_MARGINS)
        is None
    )
    assert fault(ROUND, vector) == ScoreFault(RefusalReason.OTHER_CLIENTS)
