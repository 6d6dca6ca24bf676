"""Tables of the pages, from rows that nobody ran."""

from __future__ import annotations

from typing import Any

from benchmarks.paper.tables import (
    DIGITS,
    PRESET,
    MethodRuns,
    experiments_table,
    limits_table,
    settings_of,
    targets_table,
    worst_table,
)
from clients.experiments.report import DASH
from clients.experiments.rows import ExperimentRows
from tests.clients.experiments.made_up import constant

HELD: dict[str, Any] = {"malicious": (0,), "extra": {"committee": 12}}


def played(*methods: tuple[str, float, float]) -> dict[str, ExperimentRows]:
    """Return rows of methods: accuracy without attackers and under `weak`, and under `strong`."""
    cells = []
    for method, calm, attacked in methods:
        for condition, final, more in (
            ("none", calm, {}),
            ("weak", calm, HELD | {"malicious_members": (7, 0)}),
            ("strong", attacked, HELD | {"malicious_members": (8, 0)}),
        ):
            finals = (final, final - 0.02, final + 0.02)
            cells += constant(method, finals, experiment=DIGITS, condition=condition, **more)
    return {DIGITS: ExperimentRows(tuple(cells))}


def test_the_worst_attack_has_the_least_mean() -> None:
    # 0.90, 0.88, 0.92 less 0.94, 0.92, 0.96: 0.04 lower with every seed.
    rows = played(("FedAvg", 0.94, 0.5), (PRESET, 0.93, 0.9))
    (setting,) = settings_of(rows)
    under = "strong | 0.900 ± 0.012 | -0.040 ± 0.000 | 0.880 | 0.67"
    assert worst_table(setting)[-1] == f"| {PRESET} | 0.1 | 0.930 ± 0.012 | {under} |"


def test_a_run_is_captured_by_a_primary_and_its_repliers() -> None:
    # Of 12 members 8 certify anything: the three runs of `strong` and none of `weak`.
    runs = MethodRuns(played((PRESET, 0.93, 0.9))[DIGITS].cells)
    assert runs.captured == "3 of 6"


def test_a_better_baseline_marks_the_value_that_it_exceeds() -> None:
    rows = played(("FedAvg", 0.94, 0.5), (PRESET, 0.93, 0.9), ("FLTrust", 0.91, 0.905))
    (line,) = limits_table(rows)[2:]
    assert line.startswith(
        f"| 33% | digits | strong | 0.900 ± 0.012 * | {DASH} | 0.930 ± 0.012 * |"
    )
    assert line.endswith("| 0.880 | 3 of 6 | FLTrust, 0.905 |")
    (weaker,) = limits_table(played(("FedAvg", 0.92, 0.5), (PRESET, 0.93, 0.9)))[2:]
    assert "*" not in weaker


def test_targets_are_met_or_missed_by_the_paired_loss() -> None:
    between = ("FedAvg-trainers", 0.939, 0.5), ("CMFL-III", 0.937, 0.8)
    met = targets_table(played(("FedAvg", 0.93, 0.5), *between, (PRESET, 0.925, 0.901)))
    assert [line.rpartition(" | ")[2] for line in met[2:6]] == ["yes |"] * 4
    missed = targets_table(played(("FedAvg", 0.94, 0.5), *between, (PRESET, 0.93, 0.87)))
    assert [line.rpartition(" | ")[2] for line in missed[2:6]] == ["no |"] * 4
    assert "| 0.070, strong | no |" in missed[2]
    assert [line.split("|")[3].strip() for line in missed[6:]] == ["0.001", "0.002", "0.007"]


def test_an_experiment_without_rows_is_listed() -> None:
    lines = experiments_table(played((PRESET, 0.93, 0.9)))
    assert any(f"[`{DIGITS}`]({DIGITS}.md)" in line for line in lines)
    assert any("| `normal` | no rows yet |" in line for line in lines)
