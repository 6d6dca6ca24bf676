"""`cmfl flower new`: projects that Flower can run, and nothing overwritten."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from clients.configuration.loading import load
from clients.runs.flower import FLWR
from clients.runs.population import populate
from clients.worker.process import _engine
from ledger.protocol.errors import ConfigurationError
from tests.cmfl.commands.conftest import refusal, succeeds


def test_a_project_names_its_apps(tmp_path: Path) -> None:
    succeeds("flower", "new", tmp_path / "my-app", "--preset", "smoke", "--set", "seed=7")
    project = tomllib.loads((tmp_path / "my-app" / "pyproject.toml").read_text())
    flwr = project["tool"]["flwr"]["app"]
    assert project["project"]["name"] == "my-app"
    assert FLWR in project["project"]["dependencies"]
    assert flwr["config"]["home"] == str(tmp_path / "my-app" / "home")
    imported = set()
    for reference in flwr["components"].values():
        module, attribute = reference.split(":")
        tree = ast.parse((tmp_path / "my-app" / f"{module.replace('.', '/')}.py").read_text())
        imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
        imported |= {a.name for node in imports if node.module == "cmfl.flower" for a in node.names}
        assert attribute == "app"
    assert imported == {"server_app", "client_app"}


def test_the_settings_of_a_project_are_those_that_were_given(tmp_path: Path) -> None:
    succeeds("flower", "new", tmp_path / "app", "--preset", "smoke", "--set", "seed=7")
    written = load(path=tmp_path / "app" / "app" / "run.toml")
    assert written == load("smoke", settings=("seed=7",))


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "mine").touch()
    assert "is not overwritten" in refusal("flower", "new", tmp_path / "app")
    (tmp_path / "file").touch()
    assert "is not overwritten" in refusal("flower", "new", tmp_path / "file")
    assert [path.name for path in (tmp_path / "app").iterdir()] == ["mine"]


@pytest.mark.parametrize("name", ["My App", "1app", "a" * 41, "a_b"])
def test_names_that_are_no_app_s_are_refused(tmp_path: Path, name: str) -> None:
    assert "the folder's name must be at most" in refusal("flower", "new", tmp_path / name)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["cmfl", "json"])
def test_no_app_hides_an_installed_package(tmp_path: Path, name: str) -> None:
    said = refusal("flower", "new", tmp_path / name)
    assert f"would hide the installed package {name}" in said
    assert not (tmp_path / name).exists()


def test_a_server_app_does_not_play_in_memory(tmp_path: Path) -> None:
    words = ("flower", "new", tmp_path / "app", "--preset", "smoke")
    assert "machine.ledger = memory" in refusal(*words, "--set", "machine.ledger=memory")
    assert not (tmp_path / "app").exists()


def test_without_flower_its_apps_say_what_to_install() -> None:
    from cmfl.flower import client_app, server_app
    from ledger.protocol.errors import CmflError

    for app in (server_app, client_app):
        with pytest.raises(CmflError, match=r"flwr\[simulation\]"):
            app("run.toml")


def test_a_worker_trains_by_itself() -> None:
    settings = ("machine.engine=flower", "training.path=plain")
    configuration = load("smoke", settings=settings)
    population = populate(configuration)
    with pytest.raises(ConfigurationError, match="remove it"):
        _engine(configuration, population.model, population.data, 1)
