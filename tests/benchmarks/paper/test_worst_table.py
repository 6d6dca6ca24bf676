"""The table of the worst attacks, from rows that nobody ran."""

from __future__ import annotations

import pytest

from benchmarks.paper.worst_table import SHARED, TUNED, worst_table
from ledger.protocol.errors import ConfigurationError
from tests.clients.experiments.made_up import constant, rows

CELLS = [
    *constant("crowd", (0.9, 0.9), condition="none"),
    *constant("crowd", (0.8, 0.6), condition="target"),
    *constant(
        "crowd",
        (0.85, 0.85),
        condition="ipm",
        malicious_members=(1, 3),
        extra={"committee": 4},
    ),
    *constant("FedAvg", (0.9, 0.9), condition="none"),
]


def test_each_rule_has_its_worst_attack_and_its_worst_seed() -> None:
    lines = worst_table({SHARED: rows(CELLS), TUNED: rows(CELLS)})
    assert lines[4:6] == [
        "| crowd | 0.1 | 0.900 ± 0.000 | target | 0.700 ± 0.100 | 0.600 | 0.75 |",
        "| FedAvg | 0.1 | 0.900 ± 0.000 | – | – | – | no committee |",  # noqa: RUF001
    ]
    assert lines.count(lines[4]) == 2


def test_without_rows_or_clean_rows_there_is_no_table() -> None:
    with pytest.raises(ConfigurationError, match="no rows of robustness-worst-digits"):
        worst_table({TUNED: rows(CELLS)})
    assert worst_table({SHARED: rows(CELLS)})[0] == "One learning rate:"
    with pytest.raises(ConfigurationError, match="crowd has no row without an attack"):
        worst_table({SHARED: rows(CELLS[2:])})
