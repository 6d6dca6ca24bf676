"""Settings, models, data and attacks of a run from Python keywords and objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from functools import cache
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Any, get_origin

from cmfl.arguments import CODE, reference
from ledger.io.home import DISK
from ledger.protocol.errors import ConfigurationError


@cache
def setting_names() -> tuple[str, ...]:
    """Return the names of all settings, `section.key`, in the order of the sections."""
    from clients.configuration.schema import Configuration

    return tuple(Configuration.names())


def apply_keywords(values: dict[str, Any], keywords: Mapping[str, object]) -> set[str]:
    """Put keyword arguments into the values of a configuration, and return their full names.

    A keyword is a flat name (`malicious_rate`), a full name (`"malice.malicious_rate"`), or a
    section with a table of its keys (`malice={"malicious_rate": 0.3}`). None takes a setting of the
    preset back.
    """
    settings = full_names(keywords)
    for name, value in settings.items():
        *sections, key = name.split(".")
        table = values
        for section in sections:
            table = table.setdefault(section, {})
        if value is None:
            table.pop(key, None)
        else:
            table[key] = plain_value(value)
    return set(settings)


def full_names(keywords: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of keyword arguments by their full names, tables key by key."""
    names: dict[str, object] = {}
    for name, value in keywords.items():
        if not any(each.startswith(f"{name}.") for each in setting_names()):
            names[full_name(name)] = value
        elif isinstance(value, Mapping):
            names |= {full_name(f"{name}.{key}"): single for key, single in value.items()}
        else:
            raise ConfigurationError(
                f"{name}: is a section of settings, and takes a dict of them (given: {value!r:.80})"
            )
    return names


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


def _unknown(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(dict.fromkeys(known)), 3)
    hint = f"; near it: {', '.join(near)}" if near else ""
    return f"{name}: there is no such setting{hint} (cmfl settings lists all)"


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


USUAL_RATE = 0.3
"""Share of the clients that attack, where an attack is given without a share."""

PRESET_RULE = "a preset's name, the path of a TOML file, or a dict of settings"
DATA = "data"
"""Folders of a home with the code and the data that were given as objects."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of a run as the caller gave them: names, paths, objects, or None."""

    model: Any = None
    data: Any = None
    attack: Any = None
    distance: Any = None


def put_parts(values: dict[str, Any], parts: Parts, folder: Path) -> None:
    """Put the parts of a run into the values of its configuration, by section and key."""
    for name, part in (("malice.attack", parts.attack), ("protocol.distance", parts.distance)):
        if part is not None:
            apply_keywords(values, {name: reference(name, part, folder)})
    model = parts.model
    if isinstance(model, Mapping):
        named = {"name": _model_reference(model["name"], folder)} if "name" in model else {}
        apply_keywords(values, {"model": {**model, **named}})
    elif model is not None:
        # Options are of one model, and not of another that takes its place.
        values["model"] = {"name": _model_reference(model, folder)}
    if parts.data is not None:
        _put_data(values, parts.data, folder)


def preset_text(name: str, preset: object, folder: Path) -> str:
    """Return the text that an experiment has for a preset: a name, or the path of a TOML file.

    The preset is a name, a path that ends in .toml, or a dict of all settings.
    """
    from clients.configuration.loading import checked
    from clients.configuration.parsing import TOML

    if isinstance(preset, Path) and preset.suffix != TOML:
        raise ConfigurationError(f"{name} = {str(preset)!r:.80}: must end in {TOML}")
    if isinstance(preset, str | Path):
        return str(preset)
    if not isinstance(preset, Mapping):
        raise ConfigurationError(f"{name} = {preset!r:.80}: must be {PRESET_RULE}")
    values: dict[str, Any] = {}
    apply_keywords(values, preset)
    data = checked(values).to_toml().encode()
    path = folder.absolute() / CODE / f"preset-{sha256(data).hexdigest()[:12]}{TOML}"
    DISK.write_whole(path, data)
    return str(path)


def _model_reference(model: object, folder: Path) -> str:
    if hasattr(model, "named_parameters") and not isinstance(model, type):
        kind = type(model).__name__
        raise ConfigurationError(
            f"model.name: is a module; give its class, model={kind}, for each process makes its own"
        )
    return reference("model.name", model, folder)


def _put_data(values: dict[str, Any], data: object, folder: Path) -> None:
    from clients.configuration.parsing import imply_file
    from clients.datasets.own_data import Data

    if type(data).__module__.partition(".")[0] == "datasets":  # of Hugging Face, not imported
        data = Data.from_dataset(data)
    elif isinstance(data, Mapping):
        imply_file(values, apply_keywords(values, {"data": dict(data)}))
        return
    path = Path(data) if isinstance(data, str | Path) else None
    # A text is a path of data, and neither a name nor `file.py:function`.
    is_path = path is not None and (
        isinstance(data, Path) or path.exists() or (":" not in str(data) and path.suffix != "")
    )
    # Options and partition are of one data set, and not of another that takes its place.
    if isinstance(data, Data):
        path = data.save(folder.absolute() / DATA)
        values["data"] = {"name": "file", "path": str(path), "options": data.options()}
        if data.client is not None:
            apply_keywords(values, {"protocol.clients": len(set(data.client.tolist()))})
    elif is_path:
        values["data"] = {"name": "file", "path": str(data)}
    elif hasattr(data, "columns") and hasattr(data, "to_numpy"):
        raise ConfigurationError(
            "data: is a data frame: give cmfl.Data(x=..., y=...) with its arrays, or the path of a "
            "file: frame.to_csv('mine.csv', index=False)"
        )
    else:
        values["data"] = {"name": reference("data.name", data, folder)}
