"""Python objects as parts of a run: models, data, attacks and rules become text of its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cmfl.inputs.keywords import apply_keywords
from ledger.io.home import DISK
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.datasets.own_data import Data

USUAL_RATE = 0.3
"""Share of the clients that attack, where an attack is given without a share."""

PRESET_RULE = "a preset's name, the path of a TOML file, or a dict of settings"
CODE = "code"
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
    """Put the parts of a run into the values of its configuration.

    Args:
        values: by section and key; changed in place.
        parts: as the caller gave them.
    """
    for name, part in (("malice.attack", parts.attack), ("protocol.distance", parts.distance)):
        if part is not None:
            apply_keywords(values, {name: reference(name, part, folder)})
    if parts.model is not None:
        _put_model(values, parts.model, folder)
    if parts.data is not None:
        _put_data(values, parts.data, folder)


def preset_text(name: str, preset: object, folder: Path) -> str:
    """Return the text that an experiment has for a preset: a name, or the path of a TOML file.

    Args:
        preset: a name, a path that ends in .toml, or a dict of all settings.
    """
    from clients.configuration.parsing import TOML

    if isinstance(preset, Path) and preset.suffix != TOML:
        raise ConfigurationError(f"{name} = {str(preset)!r:.80}: must end in {TOML}")
    if isinstance(preset, str | Path):
        return str(preset)
    if not isinstance(preset, Mapping):
        raise ConfigurationError(f"{name} = {preset!r:.80}: must be {PRESET_RULE}")

    from clients.configuration.loading import checked

    values: dict[str, Any] = {}
    apply_keywords(values, preset)
    data = checked(values).to_toml().encode()
    path = folder.absolute() / CODE / f"preset-{sha256(data).hexdigest()[:12]}{TOML}"
    DISK.write_whole(path, data)
    return str(path)


def reference(name: str, part: object, folder: Path) -> str:
    """Return the text that a setting has for a part: a name, or where its code is.

    Args:
        part: a name, or a class or function.
    """
    if isinstance(part, str):
        return part
    if not callable(part):
        raise ConfigurationError(
            f"{name}: must be a name, a class or a function (given: {part!r:.80})"
        )
    from ledger.io.user_code import code_reference

    return code_reference(part, folder.absolute() / CODE)


def _put_model(values: dict[str, Any], model: object, folder: Path) -> None:
    if isinstance(model, Mapping):
        table = dict(model)
        if "name" in table:
            table["name"] = _model_reference(table["name"], folder)
        apply_keywords(values, {"model": table})
        return
    # Options are of one model, and not of another that takes its place.
    values["model"] = {"name": _model_reference(model, folder)}


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

    if isinstance(data, Mapping) and not _is_dataset(data):
        imply_file(values, apply_keywords(values, {"data": dict(data)}))
        return
    if _is_dataset(data):
        data = Data.from_dataset(data)
    # Options and partition are of one data set, and not of another that takes its place.
    if isinstance(data, Data):
        values["data"] = _table_of(data, folder)
        if data.client is not None:
            apply_keywords(values, {"protocol.clients": len(set(data.client.tolist()))})
    elif isinstance(data, Path) or (isinstance(data, str) and _is_path(data)):
        values["data"] = {"name": "file", "path": str(data)}
    elif hasattr(data, "columns") and hasattr(data, "to_numpy"):
        raise ConfigurationError(
            "data: is a data frame: give cmfl.Data(x=..., y=...) with its arrays, or the path of a "
            "file: frame.to_csv('mine.csv', index=False)"
        )
    else:
        values["data"] = {"name": reference("data.name", data, folder)}


def _is_path(text: str) -> bool:
    """Return whether a text is a path of data, and neither a name nor `file.py:function`."""
    path = Path(text)
    return path.exists() or (":" not in text and path.suffix != "")


def _table_of(data: Data, folder: Path) -> dict[str, Any]:
    path = data.save(folder.absolute() / DATA)
    return {"name": "file", "path": str(path), "options": data.options()}


def _is_dataset(data: object) -> bool:
    """Return whether data are of Hugging Face's `datasets`, which is not imported for it."""
    return type(data).__module__.partition(".")[0] == "datasets"
