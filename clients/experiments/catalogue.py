"""The experiments that there are: those of the package by name, and any TOML file by its path."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from clients.configuration.errors import first_error
from clients.experiments.definition import Definition
from clients.experiments.definition_checks import require_consistent
from ledger.io.home import read_text
from ledger.io.toml import MAX_TOML_BYTES, parse_toml
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

TOML = ".toml"


def names() -> tuple[str, ...]:
    """Return the experiments that come with the package, in the order of their numbers."""
    experiments = [name.name.removesuffix(TOML) for name in _folder().iterdir() if _is_toml(name)]
    return tuple(sorted(experiments, key=lambda name: (definition_named(name).number, name)))


def definition_named(name: str) -> Definition:
    """Return an experiment."""
    return definition_of(_text(name), name)


def definition_of(text: str, name: str) -> Definition:
    """Return the experiment that a TOML text defines.

    Args:
        text: the TOML.
        name: in errors.

    Raises:
        ConfigurationError: it is no TOML, or names the first value that is wrong, and the rule.
    """
    try:
        values = parse_toml(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"experiment {name}: {error}") from error
    try:
        definition = Definition.model_validate(values)
    except ValidationError as error:
        raise ConfigurationError(f"experiment {name}: {first_error(error)}") from error
    require_consistent(definition, name)
    return definition


def _folder() -> Traversable:
    return files("clients") / "experiments" / "definitions"


def _is_toml(entry: Traversable) -> bool:
    return entry.name.endswith(TOML)


def _text(name: str) -> str:
    """Return the TOML of an experiment."""
    if name.endswith(TOML):
        return read_text(Path(name), MAX_TOML_BYTES)
    definitions = {entry.name.removesuffix(TOML): entry for entry in _folder().iterdir()}
    if name not in definitions or not _is_toml(definitions[name]):
        listed = ", ".join(names())
        raise ConfigurationError(
            f"unknown experiment {name!r}; known are {listed}, and any path that ends in {TOML}"
        )
    return definitions[name].read_text("utf-8")
