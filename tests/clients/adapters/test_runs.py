"""A run with adapters by the command line: played, audited, repeated, exported, and refused."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors.numpy import load

import cmfl
from clients.configuration.loading import load as load_configuration
from clients.configuration.run_configuration import own_code_settings
from tests.clients.adapters.bases import ROUNDS, command
from tests.cmfl.commands.conftest import refusal, succeeds
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.xdist_group("adapters")
_BARE = """
import sys
for name in ("torch", "transformers", "peft", "tokenizers"):
    sys.modules[name] = None
from cmfl.commands.application import main
sys.argv = ["cmfl", *sys.argv[1:]]
sys.exit(main())
"""


def test_a_run_takes_the_plain_path_and_measures_language(folder: Path) -> None:
    run = folder / "home" / "runs" / "run"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["decided"] for row in rows] == [True] * ROUNDS
    # Each token has one successor; random logits are worth about log 50.
    assert 0 < rows[-1]["loss"] < 4.5
    assert 0 <= rows[-1]["accuracy"] <= 1
    assert load_configuration(path=run / "config.toml").training.path == "plain"


def test_the_base_is_in_no_blob_and_its_adapters_are_the_vector(folder: Path) -> None:
    sizes = [
        path.stat().st_size for path in (folder / "home" / "blobs").rglob("*") if path.is_file()
    ]
    # Two layers, rank 2, from 16 to 48: 2 * 2 * (16 + 48) numbers of four bytes.
    assert 4 * 256 in sizes
    assert max(sizes) < (folder / "base" / "model.safetensors").stat().st_size / 2


def test_an_audit_needs_neither_torch_nor_transformers(folder: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _BARE, "audit", "--home", str(folder / "home"), "--json"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["outcome"] == "passed"


def test_updates_of_adapters_are_repeated_as_the_same(folder: Path) -> None:
    base = f"model.options.path={folder / 'base'}"
    result = cmfl.verify_training(folder / "home", data=folder / "rows.jsonl", settings=[base])
    assert result.verdict == "same"
    assert result.counts["same"] == 10 * ROUNDS


def test_a_mean_of_models_opens_in_peft(folder: Path) -> None:
    export = ("model", "export", "--home", folder / "home", "--average", 2, "--json")
    shown = succeeds(*export, "--format", "peft", "--out", folder / "mean").json
    file = succeeds(*export, "--out", folder / "mean.safetensors").json
    assert shown["sha256"] == file["sha256"]
    assert shown["says"] == file["says"]
    assert len(shown["says"]["mean_of"].split()) == 2
    tensors = load((folder / "mean.safetensors").read_bytes())
    written = load((folder / "mean" / "adapter_model.safetensors").read_bytes())
    assert sorted(part.tobytes() for part in written.values()) == sorted(
        part.tobytes() for part in tensors.values()
    )


def test_an_exported_file_is_evaluated_with_its_perplexity(folder: Path) -> None:
    home, out = folder / "home", folder / "model.safetensors"
    succeeds("model", "export", "--home", home, "--out", out)
    quality = succeeds("model", "evaluate", out, "--home", home, "--json").json
    rows = (home / "runs" / "run" / "metrics.jsonl").read_text().splitlines()
    assert quality["loss"] == json.loads(rows[-1])["loss"]
    assert quality["perplexity"] == pytest.approx(np.exp(quality["loss"]))


def test_other_formats_and_models_without_adapters_are_not_exported(folder: Path) -> None:
    out = folder / "nothing"
    export = ("model", "export", "--home", folder / "home", "--out", out)
    assert "--format pickle: must be safetensors or peft" in refusal(*export, "--format", "pickle")
    elsewhere = ("--address", f"0x{'11' * 20}", "--format", "peft")
    assert "leave out --address" in refusal(*export, *elsewhere)
    plain = folder / "plain"
    succeeds("run", "--preset", "smoke", "--home", plain, "--set", "protocol.rounds=1", "--json")
    asked = ("model", "export", "--home", plain, "--out", out, "--format", "peft")
    assert "the model 'softmax' has no adapters" in refusal(*asked)
    assert not out.exists()


def test_the_digest_of_a_base_may_be_stated(folder: Path) -> None:
    printed = succeeds("model", "digest", folder / "base").out.strip()
    assert len(printed) == 64
    once = ("protocol.rounds=1", "machine.ledger=memory")
    stated = command(folder, f"model.options.sha256={printed}", *once, home="b")
    succeeds(*stated, "--json")
    assert "is no folder" in refusal("model", "digest", folder / "none")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["training.path=lockstep"], "the task is causal-lm, and lockstep classifies alone"),
        (["malice.attack=label-flip", "malice.malicious_rate=0.2"], "label-flip changes samples o"),
    ],
)
def test_what_does_not_fit_is_refused(folder: Path, settings: list[str], sentence: str) -> None:
    assert sentence in refusal(*command(folder, *settings, home="refused"))
    assert not (folder / "refused" / "runs").exists()


def test_a_worker_names_its_own_copy_of_the_base(folder: Path) -> None:
    configuration = load_configuration(path=folder / "home" / "runs" / "run" / "config.toml")
    assert own_code_settings(configuration) == (f"model.options.path={folder / 'base'}",)
