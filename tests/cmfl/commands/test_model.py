"""`cmfl model`: the last model as a file, and back into its module."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load

from clients.models.model_file import read_model_file
from tests.cmfl.commands.conftest import (
    SHARED,
    cmfl,
    decided_rounds,
    first_decided,
    refusal,
    settings_of,
    succeeds,
)

pytestmark = SHARED


@pytest.fixture(scope="module")
def exported(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "exported.safetensors"
    succeeds("model", "export", "--home", home, "--out", path)
    return path


def last_row(home: Path) -> dict[str, float]:
    lines = (home / "runs" / "run" / "metrics.jsonl").read_text().splitlines()
    row: dict[str, float] = json.loads(lines[-1])
    return row


def test_what_is_exported_is_the_model_that_the_run_wrote(home: Path, exported: Path) -> None:
    ours = load((home / "runs" / "run" / "model.safetensors").read_bytes())
    theirs = load(exported.read_bytes())
    assert {name: part.shape for name, part in theirs.items()} == {
        "weights": (10, 64),
        "biases": (10,),
    }
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


def test_its_numbers_are_those_whose_digest_is_on_the_chain(home: Path, tmp_path: Path) -> None:
    number = first_decided(home)
    out = tmp_path / "model.safetensors"
    result = succeeds("model", "export", "--home", home, "--round", number, "--out", out, "--json")
    shown = succeeds("rounds", "show", number, "--home", home, "--json").json
    tensors = load(out.read_bytes())
    numbers = tensors["weights"].tobytes() + tensors["biases"].tobytes()
    assert f"0x{hashlib.sha256(numbers).hexdigest()}" == shown["model"] == result.json["sha256"]
    assert result.json["says"]["round"] == str(number)
    assert result.json["says"]["name"] == "softmax"
    assert (result.json["parameters"], result.json["tensors"]) == (650, 2)


def test_a_missing_folder_is_made_only_if_allowed(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "model.safetensors"
    asked = ("model", "export", "--home", home, "--out", out)
    with patch("sys.stdin", io.StringIO()):
        assert f"there is no folder {out.parent}; create it with --make-folder" in refusal(*asked)
    with patch("sys.stdin", Terminal("n\n")):
        assert cmfl(*asked).code == 2
    assert not out.parent.exists()
    with patch("sys.stdin", Terminal("y\n")):
        assert cmfl(*asked).code == 0
    shutil.rmtree(out.parent)
    succeeds(*asked, "--make-folder")
    assert out.exists()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_model_is_read_back_and_evaluates_equally(home: Path, exported: Path) -> None:
    found = succeeds("model", "evaluate", exported, "--home", home, "--json").json
    row = last_row(home)
    assert found["accuracy"] == row["accuracy"]
    assert found["loss"] == row["loss"]
    assert found["floor"] == row["floor"]
    assert found["training_loss"] is None
    own = home / "runs" / "run" / "model.safetensors"
    again = succeeds("model", "evaluate", own, "--home", home, "--training-loss", "--json").json
    assert again["accuracy"] == found["accuracy"]
    assert 0 < again["training_loss"] < 10


def model_of_round(home: Path, number: int, out: Path) -> dict[str, NDArray[np.float32]]:
    succeeds("model", "export", "--home", home, "--round", number, "--out", out)
    return load(out.read_bytes())


def test_a_mean_of_the_last_models_names_their_digests(home: Path, tmp_path: Path) -> None:
    rounds, out = decided_rounds(home), tmp_path / "mean.safetensors"
    for until, count in ((rounds[-1], len(rounds)), (rounds[1], 2)):
        export = ("model", "export", "--home", home, "--round", until["round"], "--out", out)
        result = succeeds(*export, "--average", count, "--json").json
        numbers = [row["round"] for row in rounds if row["round"] <= until["round"]][-count:]
        models = [model_of_round(home, n, tmp_path / "one.safetensors") for n in numbers]
        tensors = load(out.read_bytes())
        for name, found in tensors.items():
            total = np.sum([model[name].astype(np.float64) for model in models], axis=0)
            assert found.tobytes() == (total / count).astype(np.float32).tobytes()
        shown = [succeeds("rounds", "show", n, "--home", home, "--json").json for n in numbers]
        assert result["says"]["mean_of"].split() == [row["model"] for row in shown]
        assert result["says"]["round"] == str(until["round"])
        data = tensors["weights"].tobytes() + tensors["biases"].tobytes()
        assert result["sha256"] == f"0x{hashlib.sha256(data).hexdigest()}"
        assert read_model_file(out).facts == result["says"]
    assert succeeds("model", "evaluate", out, "--home", home, "--json").json["accuracy"] > 0


def test_a_mean_of_more_models_than_there_are_is_refused(home: Path, tmp_path: Path) -> None:
    export = ("model", "export", "--home", home, "--out", tmp_path / "mean.safetensors")
    decided = decided_rounds(home)
    sentence = refusal(*export, "--average", len(decided) + 1)
    assert sentence.startswith(f"--average {len(decided) + 1}: must be at most {len(decided)}")
    first = ("--round", first_decided(home))
    assert refusal(*export, *first, "--average", 2).startswith("--average 2: must be at most 1,")
    for number in ("0", "-1", "1001", "x"):
        assert "--average" in refusal(*export, "--average", number)
    assert not any(tmp_path.iterdir())


def test_a_round_that_made_no_model_is_refused(home: Path, tmp_path: Path) -> None:
    rows = succeeds("rounds", "list", "--home", home, "--json").json["rounds"]
    abandoned = next(row["round"] for row in rows if row["status"] == "abandoned")
    out = tmp_path / "model.safetensors"
    for number in (abandoned, 999):
        sentence = refusal("model", "export", "--home", home, "--round", number, "--out", out)
        assert sentence == f"round {number} was not decided, so it has no model"
    assert not out.exists()


def test_a_model_whose_blob_is_gone_or_damaged_is_refused(copy: Path, tmp_path: Path) -> None:
    number = first_decided(copy)
    out = tmp_path / "model.safetensors"
    digest = succeeds("rounds", "show", number, "--home", copy, "--json").json["model"][2:]
    blob = copy / "blobs" / digest[:2] / digest
    blob.write_bytes(b"\0" * blob.stat().st_size)
    arguments = ("model", "export", "--home", copy, "--round", number, "--out", out)
    assert digest in refusal(*arguments)
    blob.unlink()
    assert f"blob {digest} is missing" in refusal(*arguments)
    assert not out.exists()


def test_a_run_that_is_not_there_is_refused(exported: Path, tmp_path: Path) -> None:
    arguments = ("model", "evaluate", exported, "--home", tmp_path, "--run")
    assert "runs/other/config.toml cannot be read: No such file" in refusal(*arguments, "other")
    assert "'../other'" in refusal(*arguments, "../other")


NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, hidden: int, inputs: int = 64) -> None:
        super().__init__()
        self.hidden = nn.Linear(inputs, hidden)
        self.scores = nn.Linear(hidden, 10)

    def forward(self, x):
        return self.scores(torch.relu(self.hidden(x.flatten(1))))
"""


def test_a_class_in_a_file_is_trained_and_evaluated(tmp_path: Path) -> None:
    path, home = tmp_path / "net.py", tmp_path / "home"
    path.write_text(NET)
    model = settings_of(f"model.name='{path}:Net'", "model.options.hidden=3")
    memory = settings_of("machine.ledger=memory")
    succeeds("run", "--preset", "smoke", "--rounds", 1, "--home", home, *model, *memory, "--json")
    file = home / "runs" / "run" / "model.safetensors"
    shapes = {name: part.shape for name, part in load(file.read_bytes()).items()}
    assert shapes["hidden.weight"] == (3, 64)
    assert shapes["scores.bias"] == (10,)
    evaluated = ("model", "evaluate", file, "--home", home, "--json")
    assert "model.name" in refusal(*evaluated)
    found = succeeds(*evaluated, *model[:2]).json
    assert found["accuracy"] == last_row(home)["accuracy"]
    assert found["says"]["name"] == "net.py:Net"
    assert found["says"]["sha256"] == hashlib.sha256(NET.encode()).hexdigest()


def test_other_code_than_the_model_files_is_refused_before_it_runs(tmp_path: Path) -> None:
    path, home = tmp_path / "net.py", tmp_path / "home"
    path.write_text(NET)
    model = settings_of(f"model.name='{path}:Net'", "model.options.hidden=3")
    memory = settings_of("machine.ledger=memory")
    succeeds("run", "--preset", "smoke", "--rounds", 1, "--home", home, *model, *memory, "--json")
    canary = tmp_path / "canary"
    path.write_text(f"{NET}\nopen({str(canary)!r}, 'w')\n")
    file = home / "runs" / "run" / "model.safetensors"
    sentence = refusal("model", "evaluate", file, "--preset", "smoke", *model)
    assert hashlib.sha256(NET.encode()).hexdigest() in sentence
    assert not canary.exists()
