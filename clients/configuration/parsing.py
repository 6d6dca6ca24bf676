"""Configurations from presets, TOML files and settings of the command line.

Names of attacks and faults are left to `loading`: a production worker reads configurations too, and
imports no adversary.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from clients.configuration.errors import first_error, naming_setting
from clients.configuration.schema import Configuration
from clients.datasets.registry import data_set_named, verify_choice
from clients.models.registry import verify_name
from ledger.io.home import read_text
from ledger.io.toml import MAX_DOTS, MAX_TOML_BYTES, parse_toml
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

PRESETS = (
    "digits",
    "digits-by-writer",
    "robust",
    "smoke",
    "paper-femnist",
    "paper-sent140",
    "paper-shakespeare",
    "authors-sent140",
    "authors-shakespeare",
)


def plain_values(
    preset: str | None = None, path: Path | None = None, settings: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the values that `load` checks, by section and key.

    Args:
        preset: one of `PRESETS`; the default is "digits" without a file.
        path: a TOML file.
        settings: `section.key=value` of each.

    Raises:
        ConfigurationError: both preset and file, an unreadable file, or a malformed setting.
    """
    if preset and path:
        raise ConfigurationError("give a preset or a configuration file, not both")
    text = read_text(path, MAX_TOML_BYTES) if path else _preset(preset or "digits")
    try:
        values = parse_toml(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path or preset}: {error}") from error
    with_settings(values, settings)
    return values


def with_settings(values: dict[str, Any], settings: tuple[str, ...]) -> None:
    """Put settings of the command line, `section.key=value`, into plain values.

    Raises:
        ConfigurationError: a setting is malformed.
    """
    for setting in settings:
        _apply(values, setting)


def parse(values: dict[str, Any]) -> Configuration:
    """Return the configuration of plain values; attacks and faults are not looked up.

    Raises:
        ConfigurationError: names the first setting that is wrong, and the rule.
    """
    try:
        configuration = Configuration.model_validate(values)
    except ValidationError as error:
        raise ConfigurationError(first_error(error)) from error
    _require_names(configuration)
    return configuration


def _require_names(configuration: Configuration) -> None:
    """Refuse unknown names and impossible numbers before anything is loaded.

    Raises:
        ConfigurationError: names the value and the known ones.
    """
    with naming_setting("data.name"):
        data_set_named(configuration.data.name)
    verify_choice(configuration.data.choice())
    with naming_setting("model.name"):
        verify_name(configuration.model.name)
    machine = configuration.machine
    if machine.ray_address is not None and machine.engine != "ray":
        raise ConfigurationError("machine.ray_address is set, but machine.engine is not ray")
    configuration.local_training()
    configuration.parameters(dimension=1)


def _preset(name: str) -> str:
    if name not in PRESETS:
        raise ConfigurationError(f"unknown preset {name!r}; known are {', '.join(PRESETS)}")
    return (files("clients") / "presets" / f"{name}.toml").read_text("utf-8")


def _apply(values: dict[str, Any], setting: str) -> None:
    """Put one `section.key=value` into the values.

    Raises:
        ConfigurationError: it is malformed.
    """
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise ConfigurationError(f"--set {setting}: must be section.key=value")
    if key.count(".") > MAX_DOTS:
        raise ConfigurationError(f"--set {key[:40]}...: over {MAX_DOTS} dots in a key")
    value = _value(text)
    *sections, last = key.strip().split(".")
    table = values
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise ConfigurationError(f"--set {setting}: {section} is no section")
    if value == "":
        table.pop(last, None)  # an empty value takes a setting of the preset back
    else:
        table[last] = value


def _value(text: str) -> object:
    """Return the value after the equals sign: one TOML value, or a bare word."""
    try:
        values = parse_toml(f"value = {text}")
    except ConfigurationError:
        return text.strip()
    return values["value"] if len(values) == 1 else text.strip()
