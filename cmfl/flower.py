"""`cmfl.flower`: apps of Flower with rounds that a committee decides and a contract enforces.

    # server_app.py                             # client_app.py
    from cmfl.flower import server_app          from cmfl.flower import client_app
    app = server_app("run.toml")                app = client_app("run.toml")

`cmfl flower new DIR` writes such a project. SuperNodes train; the actors of all clients score and
vote in the process of the ServerApp, whose home has chain, blobs and files of the run.
"""

from __future__ import annotations

import logging
import re
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from cmfl.arguments import naming_extras
from cmfl.simulating import play
from cmfl.where import Target
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp

    from clients.configuration.schema import Configuration
    from clients.runs.flower import TrainingNode
    from clients.runs.metrics import RoundMetrics


_log = logging.getLogger("flwr")  # Flower shows no other logger's lines


@naming_extras()
def server_app(settings: str | Path) -> ServerApp:
    """Return a ServerApp that plays a run, or resumes it, with the SuperNodes as trainers.

    The run configuration has `home`, the folder of chain, blobs and files, `run`, its name, and
    `chain-id`, 0 for a new chain's own.
    """
    from clients.runs.flower import require_flower

    require_flower("flwr")
    from flwr.serverapp import ServerApp

    def main(grid: Grid, context: Context) -> None:
        from clients.runs.flower_grid import GridNodes

        home = Path(_option(context, "home", str))
        name, chain_id = _option(context, "run", str), _option(context, "chain-id", int)
        target = Target(home, name, chain_id=chain_id or None)
        configuration = _settings(settings)
        rounds = configuration.protocol.rounds

        def show(row: RoundMetrics) -> None:
            accuracy = "" if row.accuracy is None else f", accuracy {row.accuracy:.3f}"
            _log.info("cmfl: round %d of %d%s", row.round, rounds, accuracy)

        nodes = GridNodes(grid)
        played = play(target, configuration, lambda run: run.go_on(show), _log.warning, nodes=nodes)
        if played.stop is not None:
            _log.info("cmfl: %s", played.stop.sentence)
        _log.info("cmfl: contract %s, head 0x%s", played.address, played.head.hex())
        _log.info("cmfl: audit it with: cmfl audit --home %s --run %s", home, name)

    app = ServerApp()
    app.main()(main)
    return app


@naming_extras()
def client_app(settings: str | Path) -> ClientApp:
    """Return a ClientApp that trains the clients of its SuperNode's partition.

    The node's configuration has `partition-id` and `num-partitions`, and may have `device`.
    """
    from clients.runs.flower import require_flower

    require_flower("flwr")
    from clients.runs.flower_grid import training_app

    def node(context: Context) -> TrainingNode:
        return _opened(str(settings), str(context.node_config.get("device", "cpu")))

    return training_app(node)


@cache
def _opened(settings: str, device: str) -> TrainingNode:
    # Not a closure: Flower's simulation pickles the app for its actors.
    from clients.runs.flower import TrainingNode

    return TrainingNode(_settings(settings, device))


def _settings(path: str | Path, device: str = "cpu") -> Configuration:
    from clients.configuration.loading import load

    machine = ("machine.engine=flower", f"machine.device={device}")
    return load(path=Path(path), settings=machine)


def _option(context: Context, name: str, kind: type) -> Any:
    value = context.run_config.get(name)
    if type(value) is not kind:
        raise ConfigurationError(
            f"run configuration: {name} = {value!r:.80} must be of type {kind.__name__}; set "
            "it in pyproject.toml under [tool.flwr.app.config]"
        )
    return value


def write_project(folder: Path, configuration: Configuration) -> None:
    """Write a project whose SuperNodes train, and whose ServerApp has the home, in a folder."""
    if configuration.machine.ledger == "memory":
        raise ConfigurationError("machine.ledger = memory: a ServerApp needs a chain")
    from clients.runs.flower import FLWR

    name, package = folder.resolve().name, folder / folder.resolve().name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,39}", name):
        raise ConfigurationError(
            f"{folder}: the folder's name must be at most 40 small letters, digits and hyphens"
        )
    installed = find_spec(package.name)
    if installed is not None and installed.origin is not None:
        raise ConfigurationError(
            f"{folder}: the app would hide the installed package {package.name}; rename the folder"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(f"{folder}: exists, and is not overwritten; name a new folder")
    templates = files("cmfl") / "templates" / "flower"
    config = {"home": str(folder.resolve() / "home"), "run": "run", "chain-id": 0}
    project = (templates / "pyproject.txt").read_text("utf-8")
    words = {"NAME": name, "PACKAGE": package.name, "FLWR": FLWR}
    for word, value in (words | {"CONFIG": tomli_w.dumps(config).rstrip()}).items():
        project = project.replace(word, value)
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(project, "utf-8")
    (package / "__init__.py").touch()
    for app in ("server_app.py", "client_app.py"):
        (package / app).write_bytes((templates / app).read_bytes())
    (package / "run.toml").write_text(configuration.to_toml(), "utf-8")
