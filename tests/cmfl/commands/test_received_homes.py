"""No command and no function runs code because a home names it: the caller names what is run."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import pytest

import cmfl as face
from api.settings import Settings
from clients.datasets import own_data
from ledger.chain.contract.ledger import settings_digest
from ledger.io import user_code
from ledger.io.home import Home
from ledger.protocol.errors import CmflError
from tests.api.conftest import deployments, serving
from tests.cmfl.commands.conftest import cmfl, every_command, refusal, settings_of, succeeds
from tests.faults import times

VARIABLE = "CMFL_TEST_CANARY"
SOURCE = f"""
import os
from pathlib import Path

if "{VARIABLE}" in os.environ:
    Path(os.environ["{VARIABLE}"]).touch()
"""
CODE = {
    "model": (
        "model.name=FILE:Net",
        """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scores = torch.nn.Linear(64, 10)

    def forward(self, x):
        return self.scores(x.flatten(1))
""",
    ),
    "attack": (
        "malice.attack=FILE:backwards",
        """
def backwards(own, colluders, rng):
    return -own
""",
    ),
    "distance": (
        "protocol.distance=FILE:far",
        """
import numpy as np

def far(update, references):
    return np.abs(references - update).sum(axis=1)
""",
    ),
    "data": (
        "data.name=FILE:blobs",
        """
import numpy as np

import cmfl

def blobs():
    y = np.arange(280) % 4
    x = np.random.default_rng(0).normal(size=(280, 6)).astype(np.float32) + y[:, None]
    return cmfl.Data(x.astype(np.float32), y)
""",
    ),
}
"""For each setting that can name code: its value, and a file whose sha256 the run document has."""

EDITED = {
    "package": ("model", "softmax", "canary_of_a_package:Net"),
    "cluster": ("machine", None, "ray://198.51.100.1:10001"),
}


class HasHome(Protocol):
    home: Path


class Received:
    """A home from elsewhere, with a run for each setting that names code."""

    def __init__(self, folder: Path) -> None:
        self.home, self.folder = folder / "home", folder
        for run, (_, text) in CODE.items():
            (folder / f"{run}.py").write_text(SOURCE + text, "utf-8")
            given = ["malice.malicious_rate=0.3"] if run == "attack" else []
            settings = settings_of(self.named(run), "protocol.strategy=1", *given)
            place = ("--rounds", 2, "--home", self.home, "--run", run)
            played = cmfl("run", "--preset", "smoke", *place, *settings, "--json")
            assert played.code == 0, played

    def named(self, run: str, file: Path | None = None) -> str:
        return CODE[run][0].replace("FILE", str(file or self.folder / f"{run}.py"))


@pytest.fixture(scope="module")
def received(tmp_path_factory: pytest.TempPathFactory) -> Received:
    return Received(tmp_path_factory.mktemp("received"))


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file that the code of the received home makes when it is run."""
    path = tmp_path / "canary"
    # This process has run the code when the runs were played.
    user_code._file.cache_clear()
    own_data._called.cache_clear()
    monkeypatch.setenv(VARIABLE, str(path))
    return path


NOT_PLAYED = {
    "demo": "makes the home that it reads",
    "network": "makes the home that it reads",
    "chain serve": "reads the chain alone, which names no file",
    "blobs serve": "reads blobs alone, which name no file",
    "serve": "test_a_service_of_it_runs_no_code",
    "deploy": "takes the configuration of its caller alone",
    "experiment audit": "makes the home that it is given",
    "runs list": "played for all runs at once",
}
"""Commands with --home that are not played here, and why."""


def commands(received: HasHome, run: str, folder: Path) -> dict[str, tuple[object, ...]]:
    model = received.home / "runs" / run / "model.safetensors"
    of_run = ("--home", received.home, "--run", run)
    return {
        "run": (*of_run, "--resume"),
        "track": (*of_run, "--set", f"track.tensorboard={folder / 'track'}"),
        "audit": (*of_run, "--jobs", 1, "--training", 1),
        "coverage": of_run,
        "doctor": ("--home", received.home, "--deep"),
        "runs show": (run, "--home", received.home),
        "model export": (*of_run, "--out", folder / "model.safetensors"),
        "model evaluate": (model, *of_run),
        "verify client": (*of_run, "--round", 1, "--client", 0),
        "verify round": (*of_run, 1),
        "verify bundle": (*of_run, folder / "bundle.tar"),
        "verify attestation": (*of_run, folder / "statement.json"),
        "verify training": (*of_run, "--round", 1, "--sample", 1),
        "rounds list": (*of_run, "--full", "--json"),
        "rounds show": (*of_run, 1),
        "rounds explain": (*of_run, 1),
        "clients list": of_run,
        "evidence": of_run,
        "clients show": (*of_run, 0),
        "clients rounds": (*of_run, 0),
        "export bundle": (*of_run, "--round", 1, "--out", folder / "bundle.tar"),
        "export proof": (*of_run, "--round", 1, "--client", 0, "--out", folder / "proof"),
        "export table": ("updates", *of_run, "--output", folder / "updates.csv"),
        "export attestation": (*of_run, "--out", folder / "statement.json"),
        "export crate": (*of_run, "--out", folder / "crate"),
        "export mlbom": (*of_run, "--out", folder / "bom.json"),
        "contract source": of_run,
        "contract verify": of_run,
        "chain fund": ("--home", received.home, "--amount", 1, "0x" + "11" * 20),
        "blobs list": of_run,
        "blobs prune": (*of_run, "--keep-rounds", 1, "--dry-run"),
        "blobs copy": (*of_run, "--to", folder / "copy"),
        "log key": ("--name", "log.example/a", "--keystore", folder / "none", *of_run),
        "log publish": (
            *("--name", "log.example/a", "--keystore", folder / "none"),
            *("--out", folder / "log", *of_run),
        ),
        "log compare": (folder / "log", "--log", "none", *of_run),
        "log anchor": ("--rpc-url", "http://127.0.0.1:9", "--out", folder / "anchors", *of_run),
    }


def test_every_command_with_a_home_is_played(received: Received, tmp_path: Path) -> None:
    with_home = {name for name, each in every_command().items() if "--home" in each.options}
    assert with_home == {*commands(received, "model", tmp_path), *NOT_PLAYED}


# The commands of the fourth, `distance`, are played below, with --json.
OTHERS = ("model", "attack", "data")
COMPUTING = {"run", "audit", "model evaluate", "verify training"}
"""Commands that have a use for the code, and so are played for each of these runs."""


@pytest.mark.parametrize("run", OTHERS)
def test_no_command_runs_the_code_of_a_received_home(
    received: Received, canary: Path, tmp_path: Path, run: str
) -> None:
    all_of_them = commands(received, run, tmp_path)
    apart = times(len(OTHERS), 1)  # each other command for one of the runs
    some = [*all_of_them][OTHERS.index(run) % apart :: apart]
    for name in [each for each in all_of_them if each in some or each in COMPUTING]:
        result = cmfl(*name.split(), *all_of_them[name])
        assert not canary.exists(), name
        assert result.code in {0, 1, 2, 3}, (name, result)


def test_the_canary_sings_where_the_caller_names_the_code(received: Received, canary: Path) -> None:
    model = received.home / "runs" / "model" / "model.safetensors"
    named = settings_of(received.named("model"))
    found = succeeds("model", "evaluate", model, "--home", received.home, "--run", "model", *named)
    assert "accuracy" in found.out
    assert canary.exists()


@pytest.mark.parametrize("run", CODE)
def test_no_function_runs_the_code_of_a_received_home(
    received: Received, canary: Path, tmp_path: Path, run: str
) -> None:
    home = received.home
    face.runs(home)
    opened = face.open(home, run)
    for function in (
        lambda: face.run(home=home, name=run, resume=True),
        lambda: face.audit(home, name=run),
        lambda: face.audit(opened),
        lambda: face.coverage(home, name=run),
        lambda: face.verify_training(home, name=run, round=1, sample=1),
        lambda: opened.save(tmp_path / "saved"),
        lambda: opened.rounds[1].updates,
        lambda: opened.explain(1),
        lambda: face.verify(opened.rounds[1].prove(0), run=home),
        opened.snapshot,
    ):
        with suppress(CmflError):
            function()
        assert not canary.exists()


def test_a_service_of_it_runs_no_code(received: Received, canary: Path) -> None:
    parts = ("", "/rounds", "/rounds/1", "/rounds/1/explanation", "/rounds/1/bundle", "/training")
    with serving(Settings(home=received.home)) as http:
        served = deployments(http)
        assert {each["run"] for each in served} == {*CODE}
        for each in served:
            answers = [http.get(each["links"]["self"] + part) for part in parts]
            assert {answer.status_code for answer in answers} == {200}, answers[0].text
    assert not canary.exists()


@pytest.mark.parametrize("kind", EDITED)
def test_neither_packages_nor_clusters_of_a_received_home_are_used(
    received: Received, canary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (tmp_path / "canary_of_a_package.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    home = tmp_path / "home"
    shutil.copytree(received.home, home)
    paths = Home(home).run("distance")
    text = paths.configuration.read_text("utf-8")
    if kind == "package":
        text = text.replace('name = "softmax"', 'name = "canary_of_a_package:Net"')
    else:
        cluster = '[machine]\nengine = "ray"\nray_address = "ray://198.51.100.1:10001"'
        text = text.replace("[machine]", cluster).replace('engine = "local"\n', "")
    paths.configuration.write_text(text)
    manifest = json.loads(paths.manifest.read_text("utf-8"))
    manifest["configuration"] = settings_digest(paths)
    paths.manifest.write_text(json.dumps(manifest))
    named = settings_of(received.named("distance"))
    key = {"package": "model.name", "cluster": "machine.ray_address"}[kind]
    assert key in refusal("run", "--resume", "--home", home, "--run", "distance", *named)
    if kind == "package":
        assert key in refusal(
            *("model", "evaluate", paths.model, "--home", home, "--run", "distance")
        )
    assert not canary.exists()


@pytest.mark.parametrize("run", CODE)
def test_a_resumed_run_takes_the_callers_copy_of_its_code(
    received: Received, canary: Path, tmp_path: Path, run: str
) -> None:
    home, copy = tmp_path / "home", tmp_path / f"{run}.py"
    shutil.copytree(received.home, home)
    copy.write_bytes((received.folder / f"{run}.py").read_bytes() + b"# another\n")
    resumed = ("run", "--resume", "--home", home, "--run", run)
    sentence = refusal(*resumed)
    assert CODE[run][0].partition("=")[0] in sentence
    named = settings_of(received.named(run, copy))
    refused = refusal(*resumed, *named)
    for file in (copy, received.folder / f"{run}.py"):
        assert user_code.user_code("x", f"{file}:x").sha256 in refused  # type: ignore[operator]
    assert not canary.exists(), "another file is refused before it is run"
    shutil.copy(received.folder / f"{run}.py", copy)
    before = Home(home).run(run).configuration.read_bytes()
    assert cmfl(*resumed, *named, "--json").code == 0
    assert canary.exists()
    assert Home(home).run(run).configuration.read_bytes() == before
    assert cmfl("rounds", "list", "--home", home, "--run", run).code == 0


def test_with_json_each_command_prints_json_or_nothing_and_runs_no_code(
    received: Received, canary: Path, tmp_path: Path
) -> None:
    every, wrong = every_command(), []
    for name, arguments in commands(received, "distance", tmp_path).items():
        as_json = ["--json"] if "--json" in every[name].options else []
        result = cmfl(*name.split(), *(each for each in arguments if each != "--json"), *as_json)
        assert not canary.exists(), name
        assert result.code in {0, 1, 2, 3}, (name, result)
        try:
            assert not as_json or not result.out or isinstance(result.json, dict | list)
        except ValueError:
            wrong.append((name, result.out[:100]))
    assert wrong == []
