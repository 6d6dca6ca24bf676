"""Reference of all settings, rules, attacks and faults, read from the code.

A setting's sentence is the text under it in its class, its range follows from type and registries;
the sentence of an attack or a fault is its docstring.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterable, Iterator
from enum import Enum
from importlib.resources import files
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from clients.adversaries.faults import MEMBERS, PAYLOAD_FAULTS, TRAINERS, MemberFault, TrainerFault
from clients.attacks.registry import ATTACKS
from clients.attacks.samples import DATA_ATTACKS
from clients.configuration.parsing import PRESETS
from clients.configuration.schema import Configuration
from clients.datasets.federated_data import SettingsTable, sentence_of
from clients.datasets.partition import PARTITIONS
from clients.datasets.registry import DATASETS
from clients.models.registry import MODELS
from ledger.protocol.parameters import RANGES
from ledger.protocol.payloads import PAYLOAD_FORMS
from ledger.protocol.rules.distance import SQUARED

STRATEGIES = {
    "1": "the paper's I, for members without attackers. The first m of the ranking enter the "
    "model, weighted by their samples. The middle of the ranking is the next committee",
    "2": "the paper's II, for members without attackers. The last m of the ranking enter the "
    "model, weighted by their samples. The middle of the ranking is the next committee",
    "3": "our strategy against attackers. Updates within a right angle of the round's peers enter "
    "the model, clipped and with equal weights. The next committee is drawn from their clients",
}
"""Sentence for each value of `protocol.strategy`."""

NAMED: dict[str, Iterable[object]] = {
    "protocol.strategy": STRATEGIES,
    "protocol.distance": (SQUARED.name, "file.py:name", "package:name"),
    "protocol.payload": PAYLOAD_FORMS,
    "data.name": (*DATASETS, "file.py:name", "package:name"),
    "data.partition": PARTITIONS,
    "model.name": (*MODELS, "file.py:Class", "package:Class"),
    "machine.device": ("cpu", "cuda", "cuda:N", "auto"),
    "malice.attack": (*ATTACKS, *DATA_ATTACKS, "file.py:name", "package:name"),
    "malice.members": tuple(MemberFault),
    "malice.trainers": tuple(TrainerFault),
}
"""Settings that name something in a registry."""

_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
_TYPES = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    dict: "table",
    NoneType: "",
}


Row = dict[str, Any]
"""An entry of a list: a setting, preset, attack, fault or rule."""


def settings() -> list[Row]:
    """Return every setting of a run, in the order of the sections."""
    return [*_settings_of(Configuration, "")]


def data_settings() -> list[Row]:
    """Return the settings of each partition and of each data set's own options."""
    tables: dict[str, type[BaseModel]] = {
        **{f"data.partition, name = {name}": table for name, table in PARTITIONS.items()},
        **{f"data.options of {name}": data_set.options for name, data_set in DATASETS.items()},
    }
    rows = []
    for place, table in tables.items():
        summary = _first_line(table.__doc__)
        for key, field in table.model_fields.items():
            if key != "name":
                sentence = sentence_of(table, key) or summary
                rows.append(_setting(f"{place}: {key}", field, _default(field), sentence))
    return rows


def presets() -> list[Row]:
    """Return every preset, with the first paragraph of the comment that its file begins with."""
    rows = []
    for name in PRESETS:
        text = (files("clients") / "presets" / f"{name}.toml").read_text("utf-8")
        lines = itertools.takewhile(lambda line: line.startswith("# "), text.splitlines())
        sentence = " ".join(line.removeprefix("# ").strip() for line in lines)
        rows.append({"name": name, "sentence": sentence})
    return rows


def attacks() -> list[Row]:
    """Return every attack, on what is sent and on training samples."""
    return [
        {
            "name": attack.name,
            "on": on,
            "factor": attack.factor and attack.factor.usual,
            "least": attack.factor and attack.factor.least,
            "most": attack.factor and attack.factor.most,
            "sends": attack.sends,
            "source": attack.source,
        }
        for on, known in (("update", ATTACKS), ("samples", DATA_ATTACKS))
        for attack in known.values()
    ]


def faults() -> list[Row]:
    """Return every fault of members and of trainers."""
    texts = PAYLOAD_FAULTS | {fault: _first_line(kind.__doc__) for fault, kind in TRAINERS.items()}
    return [
        *(_choice("malice.members", f, _first_line(MEMBERS[f].__doc__)) for f in MemberFault),
        *(_choice("malice.trainers", fault, texts[fault]) for fault in TrainerFault),
    ]


def rules() -> list[Row]:
    """Return every rule of the protocol that a run may choose."""
    distance = "the paper's squared Euclidean distance. Strategy 3 compares directions instead"
    return [
        *(_choice("protocol.strategy", name, text) for name, text in STRATEGIES.items()),
        _choice("protocol.distance", SQUARED.name, distance),
        *(_choice("protocol.payload", p.name, p.sentence) for p in PAYLOAD_FORMS.values()),
    ]


def _choice(setting: str, name: str, sentence: str) -> Row:
    return {"setting": setting, "name": name, "sentence": sentence}


def _settings_of(
    section: type[SettingsTable], place: str, whole: SettingsTable | None = None
) -> Iterator[Row]:
    for key, field in section.model_fields.items():
        below, default = field.annotation, _default(field)
        if inspect.isclass(below) and issubclass(below, SettingsTable):
            yield from _settings_of(below, f"{key}.", default)
        else:
            usual = default if whole is None else getattr(whole, key)
            yield _setting(f"{place}{key}", field, usual, sentence_of(section, key))


def _default(field: FieldInfo) -> Any:
    return None if field.is_required() else field.get_default(call_default_factory=True)


def _setting(name: str, field: FieldInfo, default: Any, sentence: str) -> Row:
    return {
        "name": name,
        "default": default.value if isinstance(default, Enum) else default,
        "is_needed": field.is_required(),
        "may_be": _may_be(name, field),
        "sentence": sentence,
    }


def _may_be(name: str, field: FieldInfo) -> str:
    key = name.removeprefix("protocol.")
    if key in RANGES:
        least, most = RANGES[key]
        return f"whole number, {least} to {most}"
    words = ", ".join((*_kinds(field.annotation), *_bounds(field.metadata)))
    names = ", ".join(map(str, NAMED.get(name, ())))
    return f"{words}: {names}" if names else words


def _kinds(kind: object) -> Iterator[str]:
    origin = get_origin(kind)
    if origin in {Union, UnionType}:
        choices = [", ".join(_kinds(part)) for part in get_args(kind) if part is not NoneType]
        yield " or ".join(choices)
    elif origin is Literal:
        yield " or ".join(map(str, get_args(kind)))
    elif origin is list:
        yield f"list: {', '.join(_kinds(get_args(kind)[0]))} each"
    elif inspect.isclass(kind) and issubclass(kind, Enum):
        yield " or ".join(str(part.value) for part in kind)
    elif hasattr(kind, "__metadata__"):
        first, *metadata = get_args(kind)
        yield from _kinds(first)
        for part in metadata:
            yield from _bounds(getattr(part, "metadata", (part,)))
    else:
        yield _TYPES[origin or kind]  # type: ignore[index]


def _bounds(metadata: Iterable[object]) -> Iterator[str]:
    for part in metadata:
        for bound, sign in _BOUNDS.items():
            if hasattr(part, bound):
                yield f"{sign} {getattr(part, bound)}"


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n\n")[0].replace("\n", " ").rstrip(".")
