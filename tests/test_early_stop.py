"""The rule that ends a run early: by pencil, as a property of rows, and as documents have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.claims import EarlyStop, EarlyStopRule, StopWatch
from ledger.protocol.errors import EncodingError

PATIENT = EarlyStopRule("accuracy", patience=2)


def stop_of(rule: EarlyStopRule, values: Sequence[float | None]) -> EarlyStop | None:
    """Return the stop after the values of rounds 1, 2 and so on."""
    watch = StopWatch(rule)
    for number, value in enumerate(values, 1):
        is_loss = rule.metric == "loss"
        watch.take(number, None if is_loss else value, value if is_loss else None)
    return watch.stop


def test_a_run_stops_after_patience_evaluations_without_a_better_model() -> None:
    assert stop_of(PATIENT, [0.5, 0.6, 0.6, 0.7]) is None
    stop = stop_of(PATIENT, [0.5, 0.6, 0.6, 0.59, 0.9])
    assert stop == EarlyStop(PATIENT, 4, "patience", 0.59, 0.6, 2)


def test_better_means_by_more_than_min_delta_over_the_best() -> None:
    rule = EarlyStopRule("accuracy", patience=2, min_delta=0.25)
    assert stop_of(rule, [0.25, 0.5, 0.5]) == EarlyStop(rule, 3, "patience", 0.5, 0.25, 1)
    assert stop_of(rule, [0.125, 0.25, 0.5, 0.5]) is None


def test_a_run_stops_with_the_first_model_that_reaches_the_target() -> None:
    rule = EarlyStopRule("accuracy", target=0.75)
    assert stop_of(rule, [0.5, 0.74, 0.25]) is None
    assert stop_of(rule, [0.5, 0.75]) == EarlyStop(rule, 2, "target", 0.75, 0.75, 2)


def test_of_a_loss_less_is_better() -> None:
    rule = EarlyStopRule("loss", target=0.5, patience=1)
    assert stop_of(rule, [2.0, 1.0]) is None
    assert stop_of(rule, [2.0, 1.0, 0.5]) == EarlyStop(rule, 3, "target", 0.5, 0.5, 3)
    assert stop_of(rule, [2.0, 2.0]) == EarlyStop(rule, 2, "patience", 2.0, 2.0, 1)


def test_rounds_that_were_not_measured_do_not_count() -> None:
    assert stop_of(PATIENT, [0.5, None, None, None, 0.5]) is None
    stop = stop_of(PATIENT, [0.5, None, 0.5, None, 0.5])
    assert stop is not None
    assert stop.round == 5


RULES = st.builds(
    EarlyStopRule,
    st.sampled_from(("accuracy", "loss")),
    target=st.none() | st.floats(0, 1),
    patience=st.none() | st.integers(1, 4),
    min_delta=st.floats(0, 0.5),
)
VALUES = st.lists(st.none() | st.floats(0, 1), max_size=12)


@given(RULES, VALUES)
def test_later_rows_change_no_stop(rule: EarlyStopRule, values: list[float | None]) -> None:
    stop = stop_of(rule, values)
    if stop is not None:
        assert stop_of(rule, values[: stop.round]) == stop
        assert stop_of(rule, values[: stop.round - 1]) is None


def test_a_rule_comes_back_from_the_table_of_a_document() -> None:
    table = {"metric": "loss", "target": 0.5, "min_delta": 0.0}
    assert EarlyStopRule.of({"early_stop": table}) == EarlyStopRule("loss", target=0.5)
    assert EarlyStopRule.of({}) is None


@pytest.mark.parametrize(
    "table",
    [
        [],
        {},
        {"metric": "speed"},
        {"metric": ["loss"]},
        {"metric": "loss", "patience": 0},
        {"metric": "loss", "patience": True},
        {"metric": "loss", "patience": 1.5},
        {"metric": "loss", "target": "low"},
        {"metric": "loss", "target": 10**400},
        {"metric": "loss", "min_delta": float("nan")},
        {"metric": "loss", "min_delta": -0.5},
        {"metric": "loss", "min_delta": None},
        {"metric": "loss", "speed": 1},
    ],
)
def test_a_table_that_is_no_rule_is_refused(table: Any) -> None:
    with pytest.raises(EncodingError, match="early_stop = "):
        EarlyStopRule.of({"early_stop": table})
