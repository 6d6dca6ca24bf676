"""Own data on the command line: a run from one file, and refusals that write nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.cmfl.commands.conftest import refusal, succeeds

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 48
RUN = ("--preset", "smoke", "--rounds", 1)


def archive(path: Path, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(ROWS, 4)), np.arange(ROWS) % 3
    np.savez(path, x=x, y=y, client=np.arange(ROWS) % 12, is_test=np.arange(ROWS) >= 36)
    return path


def test_own_data_are_simulated_audited_and_bound(tmp_path: Path) -> None:
    path = archive(tmp_path / "mine.npz")
    home = tmp_path / "h"
    run = ("run", "--home", home, "--preset", "smoke", "--set", "protocol.rounds=2")
    succeeds(*run, "--set", f"data.path={path}", "--json")
    assert succeeds("audit", "--home", home, "--json").json["outcome"] == "passed"
    archive(path, seed=1)
    refused = refusal("run", "--home", home, "--resume")
    assert "the sha256 of its files was" in refused
    assert ", and is " in refused


TABLE = "a, b, kind, client\n" + "".join(
    f"{row / 7:.3f},{row % 5},{('high', 'low', 'mid')[row % 3]},s{row % 8}\n" for row in range(80)
)
NAMES = '["low", "mid", "high"]'
EIGHT = ("--set", "protocol.clients=8", "--set", "protocol.active_rate=1")


def test_a_run_first_names_features_labels_and_clients(tmp_path: Path) -> None:
    path, home = tmp_path / "mine.csv", tmp_path / "h"
    path.write_text(TABLE, "utf-8")
    kind = ("--set", f"data.path={path}", "--set", "data.options.label=kind", *EIGHT)
    said = refusal("run", "--home", home, *RUN, *kind)
    assert 'data.options.classes=["high", "low", "mid"]' in said
    classes = ("--set", f"data.options.classes={NAMES}")
    ran = succeeds("run", "--home", home, *RUN, *kind, *classes)
    assert ran.out.splitlines()[:3] == [
        "2 features: 'a', 'b' (float32), taken for numbers",
        "label: 'kind', 3 classes seen, 3 model outputs: 'low', 'mid', 'high'",
        "clients: 'client', 8 of them",
    ]
    checked = ("verify", "training", "--home", home, "--client", 0, "--data", path, "--json")
    assert succeeds(*checked).json["verdict"] in {"same", None}
    model = tmp_path / "m.safetensors"
    succeeds("model", "export", "--home", home, "--out", model)
    assert succeeds("model", "evaluate", model, "--home", home, "--json").json["samples"] == 16
    quiet = succeeds("run", "--home", tmp_path / "q", *RUN, *kind, *classes, "-q")
    assert "features" not in quiet.out


def test_settings_of_a_table_reach_its_check(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("a,kind\n1,0\n2,1\n", "utf-8")
    assert refusal("data", "check", path)
    succeeds("data", "check", path, "--set", "data.options.label=kind")
    assert "only data.options" in refusal("data", "check", path, "--set", "seed=1")
