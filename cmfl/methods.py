"""Methods and attacks of a comparison, by name or as Python objects, as an experiment has them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cmfl.arguments import TABLE, TEXT, require, require_or_none
from cmfl.inputs import full_names, plain_value, preset_text, reference
from ledger.protocol.errors import ConfigurationError

Part = str | Path | Mapping[str, object] | Callable[..., object]
"""A method or an attack: a name, a table, or a function; a method also the path of a preset."""

NO_ATTACK = "no attack"
USUAL_SHARE = 0.2

_SHARE = {"share": USUAL_SHARE}
METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {"kind": "federated", "aggregator": "FedAvg"},
    "median": {"kind": "federated", "aggregator": "Median"},
    "trimmed-mean": {"kind": "federated", "aggregator": "TrMean", "options": {"f": _SHARE}},
    "krum": {"kind": "federated", "aggregator": "Krum", "options": {"f": _SHARE}},
    "multi-krum": {"kind": "federated", "aggregator": "MultiKrum", "options": {"f": _SHARE}},
    "geometric-median": {"kind": "federated", "aggregator": "GeometricMedian"},
    "centered-clipping": {
        "kind": "federated",
        "aggregator": "CenteredClipping",
        "options": {"tau": 0.3, "L": 3},
    },
    "cmfl-1": {"rules": "digits", "settings": ["protocol.strategy=1"]},
    "cmfl-2": {"rules": "digits", "settings": ["protocol.strategy=2"]},
    "cmfl-3": {"rules": "digits", "settings": ["protocol.strategy=3"]},
    "robust": {"rules": "robust"},
}
"""Methods by name. An option `{"share": x}` counts x of a round's updates."""

_OF_A_METHOD = frozenset({"kind", "rules", "aggregator", "options", "pre", "participants", "tuned"})


def method_table(method: Part, folder: Path, share: float | None) -> dict[str, Any]:
    """Return a method as a table of an experiment.

    Args:
        method: a name of `METHODS`; a preset, or the path of one's TOML, for CMFL by its rules; a
            table with a `name`, keys of an experiment's method and settings by name; or an
            aggregator of your own: `(updates) -> vector`, `file.py:name`, or one of a package.
        share: of the updates that a robust aggregator tolerates, where its options leave it open.
    """
    if isinstance(method, Mapping):
        return _own_method(method, folder)
    if isinstance(method, str | Path):
        return _method_named(str(method), share)
    text = reference("methods", method, folder)
    return {"name": _name_of(method), "kind": "federated", "aggregator": text}


def _method_named(name: str, share: float | None) -> dict[str, Any]:
    """Return the table of a method that a text names."""
    from clients.aggregators.rules import GROUP
    from clients.configuration.parsing import PRESETS, TOML
    from ledger.io.user_code import named_code

    if name in METHODS:
        return {"name": name, **_tolerating(METHODS[name], share)}
    if name in PRESETS:
        return {"name": name, "rules": name}
    if name.endswith(TOML):
        return {"name": Path(name).stem, "rules": name}
    if named_code("methods", GROUP, name) is None:
        raise ConfigurationError(
            f"unknown method {name!r}; known are {', '.join(METHODS)}, presets and paths that end "
            f"in {TOML}, tables with a name and settings, and aggregators of your own"
        )
    return {"name": _name_of(name), "kind": "federated", "aggregator": name}


def condition_table(
    attack: Part | None, folder: Path, malice: Mapping[str, object]
) -> dict[str, Any]:
    """Return a condition as a table of an experiment.

    Args:
        attack: None for none; its name; a table of `attack` and other settings of `malice`; or a
            function `(own, colluders, rng) -> update`.
        malice: settings of `malice` by full name, for every attack that does not say otherwise.
    """
    if attack is None or attack == "none":
        return {"name": NO_ATTACK}
    own: Mapping[str, object] = attack if isinstance(attack, Mapping) else {"attack": attack}
    if own.get("attack") is None:
        raise ConfigurationError(f"attacks: {dict(own)!r:.80} names no attack")
    text = reference("attacks", own["attack"], folder)
    require_or_none(TEXT, name=own.get("name"))
    name = own.get("name") or _name_of(own["attack"])
    named = full_names({key: value for key, value in own.items() if key != "name"})
    settings = {**malice, **named, "malice.attack": text}
    return {"name": name, "settings": list(setting_lines(settings))}


def text_settings(settings: Mapping[str, object], folder: Path) -> dict[str, object]:
    """Return settings with text in place of functions and classes."""
    return {
        name: reference(name, value, folder) if callable(value) else value
        for name, value in settings.items()
    }


def setting_lines(settings: Mapping[str, object]) -> Iterator[str]:
    """Yield `section.key=value` of each setting, the value in TOML; tables key by key."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from setting_lines({f"{name}.{key}": each for key, each in value.items()})
        else:
            yield f"{name}={'' if value is None else _toml(name, plain_value(value))}"


def label_of(value: object) -> str:
    """Return the label of a value on an axis."""
    return _name_of(value) if callable(value) else str(plain_value(value))


def _own_method(method: Mapping[str, object], folder: Path) -> dict[str, Any]:
    """Return the table of a method that the caller describes."""
    if not isinstance(method.get("name"), str):
        raise ConfigurationError(f"methods: {dict(method)!r:.80} has no name")
    base: dict[str, Any] = {"name": method["name"]}
    settings: dict[str, object] = {}
    for key, value in method.items():
        if key == "name":
            continue
        if key == "settings":
            require(TABLE, settings=value)
            settings |= full_names(dict(value))  # type: ignore[call-overload]
        elif key == "rules":
            base[key] = preset_text("rules", value, folder)
        elif key in _OF_A_METHOD:
            base[key] = reference(key, value, folder) if callable(value) else plain_value(value)
        else:
            settings |= full_names({key: value})
    if "aggregator" in base:
        base.setdefault("kind", "federated")
    if settings:
        base["settings"] = list(setting_lines(text_settings(settings, folder)))
    return base


def _tolerating(table: Mapping[str, Any], share: float | None) -> dict[str, Any]:
    """Return a method whose open share of tolerated updates is that of the attackers."""
    options = table.get("options", {})
    if share is None or options.get("f") is not _SHARE:
        return dict(table)
    return {**table, "options": {**options, "f": {"share": float(share)}}}


def _name_of(part: object) -> str:
    if isinstance(part, str):
        return part.rpartition("/")[2]
    return str(getattr(part, "__name__", type(part).__name__))


def _toml(name: str, value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{name} = {value!r:.80}: must be a finite number, a text, True, False, or a list of "
            f"them"
        ) from error
