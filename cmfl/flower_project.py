"""A project of Flower, written from the templates beside this file."""

from __future__ import annotations

import re
import shutil
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import tomli_w

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.configuration.schema import Configuration

_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")


def write_project(folder: Path, configuration: Configuration) -> None:
    """Write a project whose SuperNodes train, and whose ServerApp has the run's home.

    Args:
        folder: of the project; its name becomes the app's.
    """
    if configuration.machine.ledger == "memory":
        raise ConfigurationError("machine.ledger = memory: a ServerApp plays on a chain")
    from clients.runs.flower.opening import FLWR

    name, package = folder.resolve().name, folder / _package(folder)
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{folder}: the folder's name becomes the app's: small letters, digits and hyphens, "
            f"at most 40 of them"
        )
    installed = find_spec(package.name)
    if installed is not None and installed.origin is not None:
        raise ConfigurationError(
            f"{folder}: the app's package would hide the installed package {package.name}: give "
            f"the folder another name"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(f"{folder}: is there already, and nothing is overwritten")
    templates = files("cmfl") / "templates" / "flower"
    config = {"home": str(folder.resolve() / "home"), "run": "run", "chain-id": 0}
    project = (templates / "pyproject.txt").read_text("utf-8")
    for word, value in {
        "NAME": name,
        "PACKAGE": package.name,
        "FLWR": FLWR,
        "CONFIG": tomli_w.dumps(config).rstrip(),
    }.items():
        project = project.replace(word, value)
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(project, "utf-8")
    (package / "__init__.py").touch()
    for app in ("server_app.py", "client_app.py"):
        with (templates / app).open("rb") as source, (package / app).open("wb") as target:
            shutil.copyfileobj(source, target)
    (package / "run.toml").write_text(configuration.to_toml(), "utf-8")


def _package(folder: Path) -> str:
    return folder.resolve().name.replace("-", "_")
