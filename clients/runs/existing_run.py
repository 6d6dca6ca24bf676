"""Lookup of a run in a home: its configuration, its manifest, and whether its name is free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.configuration.loading import load
from clients.runs.run_folder import run_folder
from ledger.chain.contract.manifest import read_run_manifest
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from clients.configuration.schema import Configuration
    from ledger.chain.contract.manifest import Manifest


def recorded_configuration(home: Path, name: str, settings: tuple[str, ...] = ()) -> Configuration:
    """Return the configuration of an existing run, to resume it.

    Args:
        home: of the runs.
        name: of the run.
        settings: `machine.key=value` of each; all others are fixed.

    Raises:
        ConfigurationError: there is no such run, its configuration is missing, or a setting would
            change its result.
    """
    folder = run_folder(home, name)
    path = folder.paths.configuration
    if not path.exists():
        if folder.paths.manifest.exists():
            raise ConfigurationError(f"{path} is missing: put it back; {name!r} is resumed by it")
        raise ConfigurationError(f"there is no run {name!r} in {home} to resume")
    if not path.is_file():
        raise ConfigurationError(f"{path} is no file, but a folder, a pipe or a device")
    for setting in settings:
        if not setting.startswith("machine."):
            raise ConfigurationError(f"--set {setting}: a resumed run keeps its configuration")
    configuration = load(path=path, settings=settings)
    if configuration.machine.ledger == "memory":
        raise ConfigurationError(
            f"run {name!r} was on the memory ledger (machine.ledger in {path}), which ended with "
            f"its process: start a new run under another name"
        )
    return configuration


def require_new(home: Path, name: str) -> None:
    """Refuse the name of an existing run.

    Raises:
        ConfigurationError: there is such a run.
    """
    paths = run_folder(home, name).paths
    if paths.configuration.exists():
        # A run on the memory ledger has no manifest, and cannot be taken up.
        way = "resume it, or name another" if paths.manifest.exists() else "name another"
        raise ConfigurationError(f"there is a run {name!r} in {home}: {way}")


def manifest_of(home: Path, name: str) -> Manifest:
    """Return the manifest of a run."""
    return read_run_manifest(run_folder(home, name).paths)
