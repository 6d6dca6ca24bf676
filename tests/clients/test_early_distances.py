"""Distances that are begun early are the same, or are computed when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import current_thread
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from clients.simulation import EarlyDistances
from ledger.protocol.rules.distance import DIRECTION, SQUARED, DistanceRule, Travel, plain_distances
from ledger.protocol.types import ClientId
from tests.protocol.support import f32
from tests.support.keys import ids

TRAVEL = f32(1.0, 2.0)
OTHER = DistanceRule("own", "own distances", lambda update, own: float(abs(update - own).max()))
UPDATES = {client: f32(float(client), 0.0) for client in ids(0, 1, 3, 7)}


class Counted:
    def __init__(self) -> None:
        self.asked: list[tuple[list[int], list[int]]] = []
        self.threads: list[str] = []

    def __call__(
        self,
        rule: DistanceRule,
        travel: Travel,
        updates: Mapping[ClientId, NDArray[np.float32]],
        members: Sequence[ClientId],
    ) -> NDArray[np.float64]:
        self.asked.append((sorted(updates), list(members)))
        self.threads.append(current_thread().name)
        return plain_distances(rule, travel, updates, members)


def copied(*clients: int) -> dict[ClientId, NDArray[np.float32]]:
    return {client: np.frombuffer(UPDATES[client].data, "<f4") for client in ids(*clients)}


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
def early(counted: Counted) -> EarlyDistances:
    return EarlyDistances(counted)


def test_what_was_begun_is_computed_once_and_beside_the_caller(counted: Any, early: Any) -> None:
    early.begin(SQUARED, None, UPDATES, ids(0, 3))
    expected = [[0.0, 1.0, 9.0, 49.0], [9.0, 4.0, 0.0, 16.0]]
    for _ in range(2):
        assert early(SQUARED, None, copied(0, 1, 3, 7), ids(0, 3)).tolist() == expected
    assert counted.asked == [([0, 1, 3, 7], [0, 3])]
    assert counted.threads[0].startswith("distances")


def test_some_clients_are_taken_from_started_distances(counted: Counted, early: Any) -> None:
    early.begin(SQUARED, None, UPDATES, ids(0, 3))
    assert early(SQUARED, None, copied(0, 7, 3), ids(3)).tolist() == [[9.0, 0.0, 16.0]]
    assert len(counted.asked) == 1


def test_distances_depending_on_all_updates_need_all_of_them(counted: Counted, early: Any) -> None:
    early.begin(DIRECTION, None, UPDATES, ids(1))
    fewer, all_ = copied(0, 1, 7), copied(0, 1, 3, 7)
    assert np.array_equal(
        early(DIRECTION, None, fewer, ids(1)), plain_distances(DIRECTION, None, fewer, ids(1))
    )
    assert len(counted.asked) == 2
    assert np.array_equal(
        early(DIRECTION, None, all_, ids(1)), plain_distances(DIRECTION, None, all_, ids(1))
    )
    assert len(counted.asked) == 2


def test_distances_started_along_a_displacement_belong_to_it(counted: Counted, early: Any) -> None:
    early.begin(DIRECTION, TRAVEL, UPDATES, ids(1))
    for travel, times in ((TRAVEL, 1), (TRAVEL.copy(), 2)):
        found = early(DIRECTION, travel, copied(0, 1, 3, 7), ids(1))
        assert np.array_equal(found, plain_distances(DIRECTION, travel, UPDATES, ids(1)))
        assert len(counted.asked) == times


@pytest.mark.parametrize("what", ["rule", "travel", "member", "client", "update"])
def test_anything_else_is_computed_when_asked(counted: Counted, early: Any, what: str) -> None:
    early.begin(SQUARED, None, UPDATES, ids(0))
    updates, members = copied(0, 1, 3), ids(0)
    if what == "member":
        members = ids(1)
    if what == "client":
        updates[ClientId(9)] = f32(9.0, 9.0)
    if what == "update":
        updates[ClientId(1)] = UPDATES[ClientId(1)].copy()  # the same numbers, but who knows that
    rule = OTHER if what == "rule" else SQUARED
    travel = TRAVEL if what == "travel" else None
    found = early(rule, travel, updates, members)
    assert np.array_equal(found, plain_distances(rule, travel, updates, members))
    assert len(counted.asked) == 2


def test_nothing_reads_updates_any_more_that_were_dropped(counted: Counted, early: Any) -> None:
    early.begin(SQUARED, None, UPDATES, ids(0))
    early.drop()
    early.drop()
    assert early(SQUARED, None, copied(0, 1), ids(0)).tolist() == [[0.0, 1.0]]
    assert counted.threads[-1] == current_thread().name


def test_a_non_finite_update_does_not_spoil_others(early: EarlyDistances) -> None:
    spoilt = {**UPDATES, ClientId(5): f32(np.inf, np.nan)}
    early.begin(SQUARED, None, spoilt, ids(0))
    assert early(SQUARED, None, copied(0, 1, 7), ids(0)).tolist() == [[0.0, 1.0, 49.0]]


def test_an_error_in_the_thread_reaches_whoever_asks(early: EarlyDistances) -> None:
    early.begin(SQUARED, None, {**UPDATES, ClientId(5): f32(1.0)}, ids(0))
    with pytest.raises(ValueError, match="differ in length"):
        early(SQUARED, None, copied(0, 1), ids(0))
    early.drop()
    assert early(SQUARED, None, copied(0, 1), ids(0)).tolist() == [[0.0, 1.0]]
