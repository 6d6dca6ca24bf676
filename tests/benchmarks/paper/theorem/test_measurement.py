"""A whole row of Theorem 1, and what it is not about."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.paper.theorem.measurement import theorem_row
from clients.configuration.loading import load
from clients.experiments.definition import Method
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.configuration.schema import Configuration

SMALL = ("protocol.rounds=3",)


def method(**options: object) -> Method:
    return Method(name="one", kind="theorem", options=dict(options))


def configured(*settings: str) -> Configuration:
    return load("smoke", settings=(*SMALL, *settings))


@pytest.fixture(scope="module")
def rows() -> dict[bool, dict[str, Any]]:
    return {
        averaging: theorem_row(configured(), method(mu=1.0, averaging=averaging), seed=3)
        for averaging in (False, True)
    }


@pytest.mark.parametrize("averaging", [True, False])
def test_a_row_has_error_and_bound_of_both_step_sizes(
    rows: dict[bool, dict[str, Any]], averaging: bool
) -> None:
    row = rows[averaging]
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    found = row["extra"]["theorem"]
    assert found["gamma"] == pytest.approx(4 * found["smoothness"] / found["mu"])
    assert found["heterogeneity"] > 0
    assert len(found["best_committee"]) == 4
    assert set(found["step_sizes"]) == {"theorem", "rate"}
    for told in found["step_sizes"].values():
        assert len(told["error"]) == len(told["bound"]) == 3
        assert all(0 <= e < b for e, b in zip(told["error"], told["bound"], strict=True))
        assert told["terms"]["total"] == told["bound"][-1]
        assert 0 < told["constants"]["least_gap"] <= told["constants"]["largest_gap"]
    assert len(row["samples"]) == len(row["times_aggregated"]) == 12
    assert sum(row["times_aggregated"]) == 3 * (6 if averaging else 3)
    assert row["accuracy"][-1] > row["floor"]
    assert len(row["loss"]) == len(row["training_loss"]) == 3


def test_a_row_follows_from_its_seed_alone(rows: dict[bool, dict[str, Any]]) -> None:
    assert theorem_row(configured("seed=9"), method(mu=1.0), seed=3) == rows[False]
    assert theorem_row(configured(), method(mu=1.0), seed=4) != rows[False]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (("model.name=cnn",), "model.name = cnn: Theorem 1 needs a strongly convex objective"),
        (
            ("malice.attack=same-value", "malice.malicious_rate=0.3"),
            "malice is set: Theorem 1 is about honest clients",
        ),
    ],
)
def test_what_the_theorem_is_not_about_is_refused(settings: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        theorem_row(configured(*settings), method(), seed=0)
    assert sentence in str(refused.value)
