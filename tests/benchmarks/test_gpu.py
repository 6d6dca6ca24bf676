"""`make gpu`: its steps work at tiny sizes on the processor, and what fails is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import gpu
from benchmarks.gpu import TINY, GpuPlan

ROWS = {
    "femnist": {"rounds", "seconds", "accuracy", "head", "audit", "replay", "replay seconds"},
    "round": {"clients", "of", "d", "round s", "training s"},
}
TRAINED = {
    *("work", "path", "clients", "d", "first call s", "ms a client", "processor ms a client"),
    *("card memory, MiB", "median relative difference"),
}


def failing(_plan: GpuPlan, _folder: Path, _device: str, _left: float) -> object:
    raise gpu.StepFailedError({"passed": 1, "failed": 2})


def broken(_plan: GpuPlan, _folder: Path, _device: str, _left: float) -> object:
    raise RuntimeError("CUDA error: no kernel image is available")


@pytest.mark.slow
@pytest.mark.xdist_group("adapters")
def test_every_step_works_on_the_processor(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    assert gpu.main(["--device", "cpu", "--tiny", "--out", str(out)]) == 0
    document = json.loads(out.read_text())
    assert document["failed"] == {}
    assert set(document) == {"machine", "device", "failed", "seconds", *gpu.STEPS}
    assert document["tests"]["passed"] == document["tests"]["tests"] > 0
    for run in (document["digits"], document["femnist"], document["adapters"]):
        assert run["audit"].startswith("PASSED")
        assert run["replay"] == {"same": TINY.replayed, "other": 0, "not checkable": 0}
    for step, columns in ROWS.items():
        assert set(document[step]) == columns
    assert [row["work"] for row in document["training"]] == [*TINY.works, "LoRA"]
    assert all(set(row) == TRAINED for row in document["training"])
    assert all(row["median relative difference"] == 0 for row in document["training"])


def test_without_a_card_one_sentence_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main(["--out", str(tmp_path / "gpu.json")]) == 2
    said = capsys.readouterr()
    assert "machine.device = cuda: CUDA is not available" in said.err
    assert not said.out
    assert not list(tmp_path.iterdir())


def test_steps_that_fail_or_begin_too_late_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = gpu.BUDGET_SECONDS + 1
    chosen = {"tests": (failing, 0), "training": (broken, 0), "round": (failing, late)}
    monkeypatch.setattr(gpu, "STEPS", chosen)
    out = tmp_path / "gpu.json"
    assert gpu.main(["--device", "cpu", "--tiny", "--out", str(out)]) == 1
    document = json.loads(out.read_text())
    assert document["failed"]["tests"] == {"passed": 1, "failed": 2}
    assert "no kernel image" in document["failed"]["training"]
    assert document["failed"]["round"].startswith("left out")
    assert not {"tests", "training", "round"} & set(document)
