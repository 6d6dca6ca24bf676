"""The tables of the worst attacks and of what they take, from rows that nobody ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.paper.attack_costs import cost_table
from benchmarks.paper.worst_table import SHARED, STRATEGY_3, TUNED, worst_table
from clients.experiments.rows import CellSeconds
from ledger.protocol.errors import ConfigurationError
from tests.clients.experiments.made_up import EVIDENCE, cell, constant, rows

if TYPE_CHECKING:
    from clients.experiments.rows import CellRow

CELLS = [
    *constant("crowd", (0.9, 0.9), condition="none"),
    *constant("crowd", (0.8, 0.6), condition="target"),
    *constant(
        "crowd",
        (0.95, 0.55),
        condition="ipm",
        malicious_members=(1, 3),
        extra={"committee": 4},
    ),
    *constant("FedAvg", (0.9, 0.9), condition="none"),
]


def test_each_rule_has_its_worst_attack_and_its_least_run() -> None:
    assert worst_table({SHARED: rows(CELLS)}, SHARED)[2:] == [
        "| crowd | 0.1 | 0.900 ± 0.000 | target | 0.700 ± 0.100 | -0.200 ± 0.100 | 0.550 | 0.75 |",
        "| FedAvg | 0.1 | 0.900 ± 0.000 | – | – | – | – | no committee |",  # noqa: RUF001
    ]
    alone = worst_table({SHARED: rows(CELLS[:-2])}, SHARED)
    assert "| 0.700 ± 0.100 | – | 0.550 |" in alone[2]  # noqa: RUF001


def test_without_rows_or_clean_rows_there_is_no_table() -> None:
    with pytest.raises(ConfigurationError, match="no rows of robustness-worst: make them"):
        worst_table({SHARED: rows(CELLS)}, STRATEGY_3)
    with pytest.raises(ConfigurationError, match="crowd has no row without an attack"):
        worst_table({TUNED: rows(CELLS[2:])}, TUNED)


def test_an_attack_costs_processor_time_beside_a_run_without_one() -> None:
    def took(condition: str, seed: int, cpu: float, **more: object) -> None:
        seconds = CellSeconds(wall=1.0, cpu=cpu)
        cells.append(cell("CMFL-I", seed, (0.9,), condition=condition, seconds=seconds, **more))

    cells: list[CellRow] = []
    for seed, plain, searched in ((300, 2, 8), (301, 2, 10), (302, 2, 12)):
        took("none", seed, plain)
        took("target", seed, searched)
    took("none", 303, 2, ledger=EVIDENCE)  # signs and votes besides
    took("target", 303, 2, ledger=EVIDENCE)
    (line,) = [line for line in cost_table({TUNED: rows(cells)}) if line.startswith("| target")]
    assert line.split(" | ")[3].strip(" |") == "5.0"
    with pytest.raises(ConfigurationError, match="no rows of robustness-worst-tuned"):
        cost_table({})
