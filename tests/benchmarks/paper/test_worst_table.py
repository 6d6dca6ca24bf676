"""The tables of the worst attacks and of what they take, from rows that nobody ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.paper.attack_costs import cost_table
from benchmarks.paper.worst_elsewhere import differences_table, elsewhere_table
from benchmarks.paper.worst_table import SHARED, TUNED, worst_table
from clients.experiments.report import DASH
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
    lines = worst_table({SHARED: rows(CELLS), TUNED: rows(CELLS)})
    assert lines[4:6] == [
        "| crowd | 0.1 | 0.900 ± 0.000 | target | 0.700 ± 0.100 | 0.550 | 0.75 |",
        "| FedAvg | 0.1 | 0.900 ± 0.000 | – | – | – | no committee |",  # noqa: RUF001
    ]
    assert lines.count(lines[4]) == 2


def test_without_rows_or_clean_rows_there_is_no_table() -> None:
    with pytest.raises(ConfigurationError, match="no rows of robustness-worst-digits"):
        worst_table({TUNED: rows(CELLS)})
    assert worst_table({SHARED: rows(CELLS)})[0] == "One learning rate:"
    with pytest.raises(ConfigurationError, match="crowd has no row without an attack"):
        worst_table({SHARED: rows(CELLS[2:])})


MALICE = [
    *constant("own", (0.9, 0.8), condition="none"),
    *constant("own", (0.5, 0.6), condition="target, 40 %"),
    *constant("own", (0.7,), condition="min-max, 40 %"),
    *constant("own", (0.8, 0.8), condition="target, 10 %"),
    *constant("peers-lot", (0.9, 0.9), condition="none"),
    *constant("peers-lot", (0.7, 0.7), condition="target, 40 %"),
]
SETTINGS = [
    *constant("own", (0.9,), condition="none", axes={"setting": "MLP"}),
    *constant("own", (0.3,), condition="worst-back", axes={"setting": "MLP"}),
]


def test_each_setting_and_share_of_attackers_has_its_worst_attack() -> None:
    of_all = {"robustness-worst-malice": rows(MALICE), "robustness-worst-settings": rows(SETTINGS)}
    assert elsewhere_table(of_all)[2:] == [
        f"| digits, 40 % | 1–2 | {DASH} | 0.850; 0.550 ± 0.050 target | {DASH} "  # noqa: RUF001
        "| 0.900; 0.700 ± 0.000 target |",
        f"| digits, 10 % | 2 | {DASH} | 0.850; 0.800 ± 0.000 target | {DASH} | {DASH} |",
        f"| digits, MLP | 1 | {DASH} | 0.900; 0.300 worst-back | {DASH} | {DASH} |",
    ]


def test_differences_are_paired_by_seed_method_less_other() -> None:
    table = differences_table({"robustness-worst-malice": rows(MALICE)}, "peers-lot", "own")
    assert table[2:] == [
        f"| digits, 40 % | +0.050 ± 0.050 | +0.150 ± 0.050 | {DASH} | {DASH} | {DASH} | {DASH} |",
        f"| digits, 10 % | +0.050 ± 0.050 | {DASH} | {DASH} | {DASH} | {DASH} | {DASH} |",
    ]


def test_an_attack_costs_processor_time_beside_a_run_without_one() -> None:
    def took(condition: str, seed: int, cpu: float, **more: object) -> None:
        seconds = CellSeconds(wall=1.0, cpu=cpu)
        cells.append(cell("own", seed, (0.9,), condition=condition, seconds=seconds, **more))

    cells: list[CellRow] = []
    for seed, plain, searched in ((300, 2, 8), (301, 2, 10), (302, 2, 12)):
        took("none", seed, plain)
        took("target", seed, searched)
    took("none", 303, 2, ledger=EVIDENCE)  # signs and votes besides
    took("target", 303, 2, ledger=EVIDENCE)
    (line,) = [line for line in cost_table({TUNED: rows(cells)}) if line.startswith("| target")]
    assert line.split(" | ")[4] == "5.0"
    with pytest.raises(ConfigurationError, match="no rows of robustness-worst-tuned"):
        cost_table({})
