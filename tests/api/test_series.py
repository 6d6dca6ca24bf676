"""Curves: what rounds record beside what the run's files claim, and never one for the other."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from api.settings import Settings
from ledger.claims import MAX_ANSWERED_BYTES, MAX_ROW_BYTES
from ledger.history.serialise.serialise_series import MAX_POINTS, chart_points
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
        told = read(client, path)
        claimed = told["claimed"]
        assert told["claims"] == "read"
        assert claimed["accuracy"] == [row["accuracy"] for row in rows]
        assert claimed["floor"] == [row["floor"] for row in rows]
        for damage in (no_row, endless_line, too_large, a_pipe, a_device):
            metrics.unlink()
            damage(metrics)
            told = read(client, path)
            assert (told["claims"], told["claimed"]) == ("unreadable", None), damage.__name__
            assert told["round"] == list(range(1, ROUNDS + 1)), "the chain's own columns stay"
        metrics.unlink()
        metrics.with_name("elsewhere").write_text(f"{json.dumps(rows[0])}\n", "utf-8")
        metrics.symlink_to("elsewhere")
        assert read(client, path)["claimed"]["accuracy"][0] == rows[0]["accuracy"]
        metrics.unlink()
        claimed = read(client, path)["claimed"]
        assert claimed["accuracy"] == [None] * ROUNDS


def no_row(metrics: Path) -> None:
    metrics.write_text("{}\n", "utf-8")


def endless_line(metrics: Path) -> None:
    metrics.write_bytes(b" " * (MAX_ROW_BYTES + 1))


def too_large(metrics: Path) -> None:
    metrics.touch()
    os.truncate(metrics, MAX_ANSWERED_BYTES + 1)


def a_pipe(metrics: Path) -> None:
    os.mkfifo(metrics)


def a_device(metrics: Path) -> None:
    metrics.symlink_to("/dev/zero")


def test_long_run_is_sampled_and_ends_with_the_last_round() -> None:
    assert chart_points(0) == []
    assert chart_points(MAX_POINTS) == list(range(1, MAX_POINTS + 1))
    assert chart_points(2 * MAX_POINTS + 1)[-3:] == [3_997, 4_000, 4_001]
    assert len(chart_points(10**6)) <= MAX_POINTS + 1
