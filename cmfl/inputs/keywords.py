"""Settings of a run from keyword arguments: flat names, `section.key`, or a table of a section."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from enum import Enum
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, get_origin

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from pydantic import BaseModel

MOST_NEAR = 3


@cache
def setting_names() -> tuple[str, ...]:
    """Return the names of all settings, `section.key`, in the order of the sections."""
    from clients.configuration.schema import Configuration

    return tuple(_names_in(Configuration, ""))


def apply_keywords(values: dict[str, Any], keywords: Mapping[str, object]) -> set[str]:
    """Put keyword arguments into the values of a configuration, and return their full names.

    Args:
        values: by section and key, as TOML has them; changed in place.
        keywords: by flat name (`malicious_rate`), by full name (`"malice.malicious_rate"`), or a
            section with a table of its keys (`malice={"malicious_rate": 0.3}`). None takes a
            setting of the preset back.
    """
    settings = full_names(keywords)
    for name, value in settings.items():
        _put(values, name, value)
    return set(settings)


def full_names(keywords: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of keyword arguments by their full names, tables key by key."""
    return {
        full_name(key): single
        for keyword, value in keywords.items()
        for key, single in _expanded(keyword, value)
    }


def full_name(name: str) -> str:
    """Return the full name of a setting, `section.key`."""
    from clients.configuration.schema import REMOVED, removed_setting

    if not isinstance(name, str):
        raise ConfigurationError(f"{name!r:.80}: the name of a setting must be a text")
    for removed in REMOVED:
        if name in {removed, removed.rpartition(".")[2]}:
            raise ConfigurationError(removed_setting(removed))
    if "." in name:
        if name in setting_names() or any(name.startswith(f"{t}.") for t in _tables()):
            return name
        raise ConfigurationError(_unknown(name, setting_names()))
    places = [place for place in setting_names() if place.rpartition(".")[2] == name]
    if len(places) == 1:
        return places[0]
    if places:
        listed = ", ".join(places)
        raise ConfigurationError(
            f"{name}: is the name of several settings, {listed}; write one of them in full, as in "
            f'settings={{"{places[0]}": ...}}'
        )
    flat = {place.rpartition(".")[2]: place for place in setting_names()}
    raise ConfigurationError(_unknown(name, [*flat, *setting_names()]))


def plain_value(value: object) -> object:
    """Return a value as TOML has it: numbers of NumPy, enumerations, paths and tuples as theirs."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain_value(single) for key, single in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_value(single) for single in value]
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "shape", None) == () else value


def _expanded(name: str, value: object) -> Iterable[tuple[str, object]]:
    """Yield the settings of one keyword: those of a section's table, or itself."""
    if name in _sections():
        if not isinstance(value, Mapping):
            raise ConfigurationError(
                f"{name}: is a section of settings, and takes a dict of them (given: {value!r:.80})"
            )
        return [(f"{name}.{key}", single) for key, single in value.items()]
    return [(name, value)]


def _put(values: dict[str, Any], name: str, value: object) -> None:
    *sections, key = name.split(".")
    table = values
    for section in sections:
        table = table.setdefault(section, {})
    if value is None:
        table.pop(key, None)
    else:
        table[key] = plain_value(value)


def _unknown(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(dict.fromkeys(known)), MOST_NEAR)
    hint = f"; near it: {', '.join(near)}" if near else ""
    return f"{name}: there is no such setting{hint} (cmfl settings lists all)"


def _names_in(section: type[BaseModel], prefix: str) -> Iterable[str]:
    from clients.configuration.schema import Section

    for key, field in section.model_fields.items():
        below = field.annotation
        if isinstance(below, type) and issubclass(below, Section):
            yield from _names_in(below, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


@cache
def _sections() -> frozenset[str]:
    return frozenset(name.partition(".")[0] for name in setting_names() if "." in name)


@cache
def _tables() -> tuple[str, ...]:
    """Return the settings that are tables of free keys, such as `data.options`."""
    from clients.configuration.schema import Configuration

    return tuple(
        f"{section}.{key}"
        for section, field in Configuration.model_fields.items()
        for key, each in getattr(field.annotation, "model_fields", {}).items()
        if get_origin(each.annotation) is dict
    )
