"""Standard output has a command's result alone, whatever a user's code prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cmfl.commands.conftest import settings_of

if TYPE_CHECKING:
    from tests.processes import Forks

NOISE = """
import ctypes
import os
import sys
import warnings

import numpy as np
import torch

import cmfl


def noise(where):
    print("PYTHON", where)
    sys.__stdout__.write(f"UNDER {where}\\n")
    os.write(1, f"DESCRIPTOR {where}\\n".encode())
    ctypes.CDLL(None).puts(f"LIBRARY {where}".encode())
    ctypes.CDLL(None).fflush(None)
    warnings.warn(f"WARNING {where}")


noise("import")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scores = torch.nn.Linear(6, 4)

    def forward(self, x):
        noise("model")
        return self.scores(x)


def backwards(own, colluders, rng):
    noise("attack")
    return -own


def far(update, references):
    noise("distance")
    return np.abs(references - update).sum(axis=1)


def blobs():
    noise("data")
    y = np.arange(280) % 4
    x = np.random.default_rng(0).normal(size=(280, 6)) + y[:, None]
    return cmfl.Data(x.astype(np.float32), y)
"""
PLACES = ("import", "model", "attack", "distance", "data")
CODE = (
    *("model.name=noisy.py:Net", "data.name=noisy.py:blobs", "malice.attack=noisy.py:backwards"),
    "protocol.distance=noisy.py:far",
)


def printed_as_json(forks: Forks, *arguments: object) -> str:
    """Return the standard error of a command whose standard output must be JSON alone."""
    with forks.start(*arguments, "--json") as started:
        out, err = started.communicate()
    assert started.returncode in {0, 1}, err
    json.loads(out)
    return err


@pytest.mark.parametrize("workers", [1, 2])
def test_with_json_the_noise_of_own_code_is_on_standard_error(
    forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "noisy.py").write_text(NOISE)
    named, home = settings_of(*CODE), ("--home", tmp_path / "home")
    settings = settings_of("malice.malicious_rate=0.3", "training.path=plain")
    run = ("run", "--preset", "smoke", "--rounds", 1, "--workers", workers, *home)
    err = printed_as_json(forks, *run, *named, *settings)
    for kind in ("PYTHON", "UNDER", "DESCRIPTOR", "LIBRARY", "WARNING"):
        assert [place for place in PLACES if f"{kind} {place}" not in err] == []
    if workers > 1:
        return
    assert "PYTHON import" in printed_as_json(forks, "audit", *home, "--rules", "noisy.py")
    model = tmp_path / "home" / "runs" / "run" / "model.safetensors"
    evaluate = ("model", "evaluate", model, *home, *named[:4])
    assert "PYTHON model" in printed_as_json(forks, *evaluate)
    training = ("verify", "training", *home, "--sample", 1, *named[:4])
    assert "PYTHON model" in printed_as_json(forks, *training)
    resume = ("run", *home, "--resume", *named)
    assert "PYTHON import" in printed_as_json(forks, *resume)


def test_help_and_tables_are_on_standard_output(forks: Forks) -> None:
    for arguments in (("--version",), ("export", "--help"), ("settings", "presets")):
        with forks.start(*arguments) as started:
            out, err = started.communicate()
        assert out
        assert err == ""
