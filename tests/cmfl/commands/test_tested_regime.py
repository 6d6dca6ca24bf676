"""Warnings of runs in which nobody has shown that the rules hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cmfl.commands.conftest import cmfl, succeeds

if TYPE_CHECKING:
    from pathlib import Path

RUN = ("run", "--preset", "smoke", "--rounds", 1, "--set", "machine.ledger=memory", "--json")
ATTACK = ("--set", "malice.attack=ipm", "--set", "malice.malicious_rate=0.25")


def test_an_attacked_run_outside_the_regime_is_warned_of_once(tmp_path: Path) -> None:
    result = cmfl(*RUN, *ATTACK, "--home", tmp_path)
    assert result.code == 0
    assert result.err.count("outside the tested regime: a committee of 4") == 1
    assert result.json["run"] == "run"  # standard output is JSON alone


def test_a_run_that_nobody_attacks_is_not_warned_of(tmp_path: Path) -> None:
    succeeds(*RUN, "--home", tmp_path)  # quietly
