"""Runs of other tasks than classes, on the chain and on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clients.configuration.loading import load
from clients.replay.replay_inputs import ReplayRequest
from tests.clients.played import Player, require_refused
from tests.clients.replay.support import SAME, repeated, verdicts
from tests.cmfl.commands.conftest import cmfl

NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self, classes=7):
        super().__init__()
        self.table = nn.Embedding(7, 4)
        self.last = nn.Linear(4, classes)

    def forward(self, x):
        return self.last(self.table(x.clamp(min=0)))
"""


@pytest.fixture
def numbers(tmp_path: Path) -> str:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(120, 3))
    lines = [f"{a},{b},{c},{a + 2 * b - c}\n" for a, b, c in rows.tolist()]
    (tmp_path / "rows.csv").write_text("a,b,c,y\n" + "".join(lines))
    return str(tmp_path / "rows.csv")


@pytest.fixture
def sequences(tmp_path: Path) -> list[str]:
    (tmp_path / "net.py").write_text(NET)
    rows = [
        {"tokens": [(row + place) % 7 for place in range(3 + row % 4)], "client": f"c{row % 12}"}
        for row in range(60)
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return [
        "data.name=file",
        f"data.path={tmp_path / 'rows.jsonl'}",
        "data.options.task=causal-lm",
        f"model.name={tmp_path / 'net.py'}:Net",
        "protocol.rounds=3",
    ]


def test_numbers_are_regressed_by_a_built_in_model(tmp_path: Path, numbers: str) -> None:
    command = ["run", "--preset", "smoke", "--home", tmp_path / "home", "--set"]
    memory = ["--set", "machine.ledger=memory", "--set", "data.options.task=regress"]
    ended = cmfl(*command, f"data.path={numbers}", *memory, "--set", "training.learning_rate=0.1")
    assert ended.code == 0, ended.err
    assert "mean squared error" in ended.out
    folder = tmp_path / "home" / "runs" / "run"
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert {(row["accuracy"], row["floor"]) for row in rows} == {(None, 0.0)}
    assert rows[-1]["loss"] < rows[0]["loss"]
    assert load(path=folder / "config.toml").training.path == "plain"


def test_the_next_token_is_learned_and_updates_are_repeated(player: Player, sequences: Any) -> None:
    played = player.play(*sequences)
    first, last = played.rows[0].loss, played.rows[-1].loss
    assert first is not None
    assert last is not None
    assert last < first
    # Seven tokens are about equally frequent.
    assert played.rows[-1].floor == pytest.approx(1 / 7, abs=0.15)
    assert set().union(*verdicts(repeated(played, source_of(sequences))).values()) == {SAME}


def source_of(settings: list[str]) -> ReplayRequest:
    path = next(s for s in settings if s.startswith("data.path=")).partition("=")[2]
    model = next(s for s in settings if s.startswith("model.name="))
    return ReplayRequest(data=Path(path), settings=(model,))


def test_attacks_on_classes_refuse_other_tasks(tmp_path: Path, sequences: list[str]) -> None:
    attack = ("malice.attack=backdoor", "malice.malicious_rate=0.2", "machine.ledger=memory")
    configuration = load("smoke", settings=(*sequences, *attack))
    require_refused(tmp_path, configuration, "backdoor needs classes")
