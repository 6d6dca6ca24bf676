"""A user's own distance and scoring: names with digests, and what their functions must return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ledger.protocol.errors import ParametersError
from ledger.protocol.parameters import Parameters
from ledger.protocol.rules import registry
from ledger.protocol.rules.distance import DistanceContext
from ledger.protocol.rules.own import (
    OwnRuleMissingError,
    OwnRuleName,
    OwnRuleViolationError,
    own_distance,
    own_scoring,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.protocol.rules.distance import DistanceMeasure

DIGEST = "ab" * 32
NAME = OwnRuleName("rule.py:mine", "mine", DIGEST)
UPDATE, REFERENCE = np.array([1, 2], np.float32), np.array([3, 5], np.float32)


def measure(function: Callable[..., Any]) -> DistanceMeasure:
    return own_distance(NAME, function).among({}, DistanceContext())


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
    assert found.between(UPDATE, REFERENCE) == 5
    assert found.tolerance(UPDATE, 5.0) == pytest.approx(5e-9, rel=1e-3)
    assert found.tolerance(UPDATE, 0.0) > 0
    assert found.can_score(REFERENCE)
    with pytest.raises(ValueError, match="differ"):
        found.between(UPDATE, REFERENCE[:1])


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
    with pytest.raises(OwnRuleViolationError, match=f"rule.py:mine.*{message}"):
        measure(lambda _update, _references: result).between(UPDATE, REFERENCE)


def test_an_own_distance_cannot_change_its_input() -> None:
    def changing(update: Any, references: Any) -> Any:
        references += update
        return references[:, 0]

    with pytest.raises(ValueError, match="read-only"):
        measure(changing).between(UPDATE, REFERENCE)
    assert REFERENCE.tolist() == [3, 5]


def test_an_own_scoring_takes_one_column_at_a_time() -> None:
    combine = own_scoring(NAME, lambda values: float(values.max() - values.min())).combine
    assert combine(np.array([[1.0, 7.0], [4.0, 5.0]])).tolist() == [3, 2]
    assert combine(np.zeros((2, 0))).shape == (0,)
    with pytest.raises(ValueError, match="no member's distances"):
        combine(np.zeros((0, 2)))


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (3, "returns int; must return one float"),
        (np.zeros(1), "returns ndarray"),
        (float("inf"), "returns inf; must return a finite number"),
        (-1.0, "at least 0"),
    ],
)
def test_a_score_that_is_none_is_refused(result: object, message: str) -> None:
    with pytest.raises(OwnRuleViolationError, match=f"rule.py:mine.*{message}"):
        own_scoring(NAME, lambda _values: result).combine(np.ones((2, 1)))


def test_a_negative_zero_is_a_zero_with_the_bits_of_one() -> None:
    distance = measure(lambda _update, _references: np.array([-0.0]))
    assert np.float64(distance.between(UPDATE, REFERENCE)).tobytes() == bytes(8)
    score = own_scoring(NAME, lambda _values: -0.0).combine(np.ones((2, 1)))
    assert score.tobytes() == np.zeros(1).tobytes()


def test_parameters_take_the_name_of_an_own_rule() -> None:
    sizes: dict[str, Any] = {
        "clients": 12,
        "active_ppm": 1_000_000,
        "committee_ppm": 400_000,
        "aggregation_ppm": 500_000,
        "rounds": 1,
        "dimension": 3,
    }
    named = Parameters(**sizes, distance=str(NAME), scoring=str(NAME))
    assert named.distance == str(NAME)
    for field in ("threshold", "reference"):
        with pytest.raises(ParametersError, match="is none of"):
            Parameters(**sizes | {field: str(NAME)})
    with pytest.raises(ParametersError, match="goes with distance = direction"):
        Parameters(**sizes, distance=str(NAME), strategy=3, threshold="direction")


def test_an_own_rule_is_computed_only_where_its_code_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for named in (registry.distance_named, registry.scoring_named):
        with pytest.raises(OwnRuleMissingError, match=DIGEST):
            named(str(NAME))
    rule, scoring = own_distance(NAME, np.dot), own_scoring(NAME, np.max)
    monkeypatch.setitem(registry.OWN_DISTANCES, str(NAME), rule)
    monkeypatch.setitem(registry.OWN_SCORINGS, str(NAME), scoring)
    assert registry.distance_named(str(NAME)) is rule
    assert registry.scoring_named(str(NAME)) is scoring
    assert registry.distance_named("squared").name == "squared"
    assert registry.scoring_named("mean").name == "mean"


def test_an_own_rule_is_explained_without_its_code() -> None:
    assert registry.rule_sentences(str(NAME), str(NAME)) == (
        "distances by rule.py:mine",
        "rule.py:mine",
    )
    assert registry.rule_sentences("squared", "mean") == ("squared distances", "mean")
