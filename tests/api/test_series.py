"""Curves: what rounds record beside what the run's files claim, and never one for the other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from api.settings import Settings
from ledger.history.facts.series import MOST_POINTS, told_rounds
from tests.api.conftest import ROUNDS, deployments, read, serving

if TYPE_CHECKING:
    import httpx


def test_columns_are_those_of_the_rounds(client: httpx.Client, root: str) -> None:
    told = read(client, f"{root}/series")
    rounds = read(client, f"{root}/rounds", order="oldest", full="true")["rounds"]
    assert told["round"] == list(range(1, ROUNDS + 1))
    assert told["status"] == [one["status"] for one in rounds]
    assert told["views"] == [one["views"] for one in rounds]
    decided = [one["status"] == "decided" for one in rounds]
    accepted = [one["accepted"] if d else None for one, d in zip(rounds, decided, strict=True)]
    assert told["accepted"] == accepted
    assert told["committee"] == [
        [member["client"] for member in one["parts"]["committee"]] for one in rounds
    ]


def test_accuracy_is_a_claim_of_the_runs_own_files(home: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(home, tmp_path / "home"))
    metrics = copy / "runs" / "first" / "metrics.jsonl"
    rows = [json.loads(line) for line in metrics.read_text("utf-8").splitlines()]
    with serving(Settings(home=copy)) as client:
        path = f"{deployments(client)[0]['links']['self']}/series"
        claimed = read(client, path)["claimed"]
        assert claimed["accuracy"] == [row["accuracy"] for row in rows]
        assert claimed["floor"] == [row["floor"] for row in rows]
        metrics.write_text("{}\n", "utf-8")
        assert read(client, path)["claimed"] is None, "what is no row claims nothing"
        metrics.unlink()
        claimed = read(client, path)["claimed"]
        assert claimed["accuracy"] == [None] * ROUNDS


def test_a_long_run_is_told_by_every_so_many_th_round_and_the_last() -> None:
    assert told_rounds(0) == []
    assert told_rounds(MOST_POINTS) == list(range(1, MOST_POINTS + 1))
    assert told_rounds(2 * MOST_POINTS + 1)[-3:] == [3_997, 4_000, 4_001]
    assert len(told_rounds(10**6)) <= MOST_POINTS + 1
