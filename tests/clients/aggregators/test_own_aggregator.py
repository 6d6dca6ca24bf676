"""A user's own aggregator: a function from updates to one vector."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from clients.aggregators.mixture import Mixture
from clients.aggregators.registry import aggregator_named
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

UPDATES = [np.array([1, 2], np.float32), np.array([3, 6], np.float32)]


def written(folder: Path, body: str) -> str:
    path = folder / "mine.py"
    text = f"import numpy as np\ndef mine(updates, scale=1.0):\n    {body}\n"
    path.write_text(text, "utf-8")
    return f"{path}:mine"


def test_a_function_aggregates_with_its_options(tmp_path: Path) -> None:
    reference = written(tmp_path, "return scale * updates.max(axis=0)")
    aggregator = aggregator_named(reference, {"scale": 2.0})
    selection = aggregator.aggregate(Mixture(UPDATES), np.ones(2), np.zeros(2))
    assert selection.vector.tolist() == [6, 12]
    assert selection.used == (0, 1)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return updates", r"returns float64 of shape \(2, 2\); must return floats"),
        ("return updates.sum(axis=0) * np.nan", "returns numbers that are not finite"),
        ("updates[0] = 0; return updates[0]", "changes its input: ValueError"),
        ("return updates.lots", r"it fails.*AttributeError.*\(mine.py, line 3\)"),
    ],
)
def test_a_function_that_breaks_a_rule_is_refused(tmp_path: Path, body: str, message: str) -> None:
    aggregator = aggregator_named(written(tmp_path, body), {})
    with pytest.raises(ConfigurationError, match=f"mine.py:mine.*{message}"):
        aggregator.aggregate(Mixture(UPDATES), np.ones(2), np.zeros(2))


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="unknown aggregator 'mine'; known are FedAvg"):
        aggregator_named("mine", {})
