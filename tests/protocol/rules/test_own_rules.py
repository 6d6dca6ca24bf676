"""Distances between updates: the paper's, a user's own, and the matrix of a round."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ledger.protocol.errors import ConfigurationError
from ledger.protocol.rules.distance import (
    DIRECTION,
    OWN_DISTANCES,
    SQUARED,
    DistanceRule,
    OwnRuleName,
    distance_named,
    distance_sentence,
    own_distance,
    plain_distances,
    squared_distance,
)
from ledger.protocol.types import ClientId
from tests.protocol.support import f32
from tests.support.keys import ids

if TYPE_CHECKING:
    Between = Callable[[NDArray[np.float32], NDArray[np.float32]], float]


DIGEST = "ab" * 32
NAME = OwnRuleName("rule.py:mine", "mine", DIGEST)
UPDATE, REFERENCE = np.array([1, 2], np.float32), np.array([3, 5], np.float32)


def measure(function: Callable[..., Any]) -> Between:
    between = own_distance(NAME, function).between
    assert between is not None
    return between


def test_a_name_has_a_label_and_the_digest_of_the_code() -> None:
    assert OwnRuleName.of(f"rule.py:mine@sha256:{DIGEST}") == NAME
    assert str(NAME) == f"rule.py:mine@sha256:{DIGEST}"
    for other in (
        "squared",
        "rule.py:mine",
        f"a/rule.py:mine@sha256:{DIGEST}",
        f"\x1b{NAME}",
        f"{NAME}0",
    ):
        assert OwnRuleName.of(other) is None


def test_an_own_distance_is_that_of_its_function() -> None:
    found = measure(lambda update, references: np.abs(references - update).sum(axis=1))
    assert found(UPDATE, REFERENCE) == 5
    rule = own_distance(NAME, np.dot)
    assert rule.absolute_tolerance == 1e-12


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (3.0, "returns float; must return float64 of shape"),
        (np.zeros(2), r"returns float64 of shape \(2,\)"),
        (np.zeros(1, np.float32), "returns float32"),
        (np.array([np.nan]), r"returns \[nan\]"),
        (np.array([-1.0]), "at least 0"),
        (np.array([1e301]), "at most 1e300"),
    ],
)
def test_a_distance_that_is_none_is_refused(result: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"rule.py:mine.*{message}"):
        measure(lambda _update, _references: result)(UPDATE, REFERENCE)


def test_an_own_distance_cannot_change_its_input() -> None:
    def changing(update: Any, references: Any) -> Any:
        references += update
        return references[:, 0]

    with pytest.raises(ValueError, match="read-only"):
        measure(changing)(UPDATE, REFERENCE)
    assert REFERENCE.tolist() == [3, 5]


def test_a_negative_zero_is_a_zero_with_the_bits_of_one() -> None:
    distance = measure(lambda _update, _references: np.array([-0.0]))
    assert np.float64(distance(UPDATE, REFERENCE)).tobytes() == bytes(8)


def test_an_own_rule_is_computed_only_where_its_code_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigurationError, match=DIGEST):
        distance_named(str(NAME))
    rule = own_distance(NAME, lambda update, references: references @ update)
    monkeypatch.setitem(OWN_DISTANCES, str(NAME), rule)
    assert distance_named(str(NAME)) is rule
    assert distance_named("squared") is SQUARED
    updates = {ClientId(0): UPDATE, ClientId(1): REFERENCE}
    assert plain_distances(rule, None, updates, ids(1)).tolist() == [[13, 34]]


def test_an_own_rule_is_explained_without_its_code() -> None:
    assert distance_sentence(str(NAME)) == "distances by rule.py:mine"
    assert distance_sentence("squared") == "squared distances"


each_rule = pytest.mark.parametrize("rule", [SQUARED, DIRECTION], ids=lambda rule: rule.name)
whole = st.integers(-1000, 1000)


@st.composite
def rounds(draw: st.DrawFn) -> dict[ClientId, NDArray[np.float32]]:
    rows = draw(st.lists(st.tuples(whole, whole, whole), min_size=1, max_size=6))
    return {ClientId(index): f32(*row) for index, row in enumerate(rows)}


def test_differences_are_taken_in_float64() -> None:
    # In float32, 2^24 + 1 does not exist: the difference to -1 would be 2^24.
    assert squared_distance(f32(2.0**24), f32(-1)) == float((2**24 + 1) ** 2)


@each_rule
def test_updates_of_different_length_have_no_matrix(rule: DistanceRule) -> None:
    for other in (f32(1), f32(1, 2, 3, 4)):
        with pytest.raises(ValueError, match="differ in length"):
            plain_distances(rule, None, {ClientId(0): f32(1, 2, 3), ClientId(1): other}, ids(0))


@each_rule
def test_a_round_without_members_or_updates_has_an_empty_matrix(rule: DistanceRule) -> None:
    assert plain_distances(rule, None, {}, ()).shape == (0, 0)
    assert plain_distances(rule, None, {ClientId(3): f32(1, 1, 1)}, ()).shape == (0, 1)


@given(updates=rounds())
def test_the_matrix_has_member_rows_and_ascending_columns(
    updates: dict[ClientId, NDArray[np.float32]],
) -> None:
    members = sorted(updates, reverse=True)[:3]
    shuffled = dict(reversed(updates.items()))
    found = plain_distances(SQUARED, None, shuffled, members)
    assert found.shape == (len(members), len(updates))
    for row, member in zip(found, members, strict=True):
        for value, client in zip(row, sorted(updates), strict=True):
            pairs = zip(updates[client].tolist(), updates[member].tolist(), strict=True)
            assert value == sum(int(a - b) ** 2 for a, b in pairs)
