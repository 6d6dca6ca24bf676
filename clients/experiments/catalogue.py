"""Experiments by name, or by the path of a TOML file: read, and checked beyond the types.

A learning rate is never chosen on the seeds that it is judged by, so that a seed of the one kind is
refused among the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from math import inf
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from clients.experiments.definition import (
    ANY,
    Definition,
    ExperimentCondition,
    Method,
    Tuning,
    require_axes,
)
from ledger.io.home import read_text
from ledger.io.toml import MAX_TOML_BYTES, parse_toml
from ledger.protocol.errors import ConfigurationError

TOML = ".toml"


@cache
def names() -> tuple[str, ...]:
    """Return the experiments that come with the package, in the order of their numbers."""
    return tuple(
        sorted(_packaged(), key=lambda name: order_of(name, definition_named(name).number))
    )


@cache
def _packaged() -> dict[str, dict[str, Any]]:
    """Return the values of each packaged experiment: of a file, and of the variants in it."""
    found: dict[str, dict[str, Any]] = {}
    for entry in (files("clients") / "experiments" / "definitions").iterdir():
        if entry.name.endswith(TOML):
            name = entry.name.removesuffix(TOML)
            values = parse_toml(entry.read_text("utf-8"))
            variants = values.pop("variants", {})
            found[name] = values
            found |= {variant: {"extends": name, **own} for variant, own in variants.items()}
    return found


def _extended(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values on top of those of the packaged experiment that they extend.

    A name in the place of a method or a condition is one of that experiment.
    """
    if "extends" not in values:
        return dict(values)
    base = _extended(_values_of(str(values["extends"])))
    own = {key: value for key, value in values.items() if key != "extends"}
    for key in {"methods", "conditions"} & own.keys():
        known = {table["name"]: table for table in base.get(key, [])}
        own[key] = [known.get(one, one) if isinstance(one, str) else one for one in own[key]]
    return base | own


def _values_of(name: str) -> dict[str, Any]:
    """Return the values of a packaged experiment."""
    if name not in _packaged():
        listed = ", ".join(names())
        raise ConfigurationError(
            f"unknown experiment {name!r}; known are {listed}, and any path that ends in {TOML}"
        )
    return _packaged()[name]


def order_of(name: str, number: int | None) -> tuple[float, str]:
    """Return the sort key of an experiment: by number, those without one last."""
    return inf if number is None else number, name


def name_of(experiment: str) -> str:
    """Return the name of an experiment that is named by itself or by the path of its TOML."""
    return Path(experiment).stem if experiment.endswith(TOML) else experiment


def definition_named(name: str) -> Definition:
    """Return an experiment, by its name or by the path of its TOML."""
    if name.endswith(TOML):
        return definition_of(read_text(Path(name), MAX_TOML_BYTES), name)
    return _definition(_values_of(name), name)


def definition_of(text: str, name: str) -> Definition:
    """Return the experiment that a TOML text defines; errors name it, and the first wrong value."""
    try:
        values = parse_toml(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"experiment {name}: {error}") from error
    return _definition(values, name)


def _definition(values: Mapping[str, Any], name: str) -> Definition:
    try:
        definition = Definition.model_validate(_extended(values))
    except ValidationError as error:
        from clients.configuration.parsing import first_error  # noqa: PLC0415 - it loads torch

        raise ConfigurationError(f"experiment {name}: {first_error(error)}") from error
    if not definition.conditions:
        condition = ExperimentCondition(name=_only_condition(definition))
        definition = definition.model_copy(update={"conditions": [condition]})
    require_consistent(definition, name)
    return definition


def _only_condition(definition: Definition) -> str:
    """Return the name of the condition of an experiment that names none: what attacks in it."""
    points = (point for axis in definition.axes for point in axis.values)
    varied = [setting for table in (*definition.methods, *points) for setting in table.settings]
    if any(setting.startswith("malice.") for setting in varied):
        return "attack as set"
    from clients.configuration.parsing import plain_values  # noqa: PLC0415 - it loads torch

    malice = plain_values(definition.preset, settings=tuple(definition.settings)).get("malice", {})
    return str(malice["attack"]) if malice.get("attack") else "clean"


def require_consistent(definition: Definition, name: str) -> None:
    """Refuse repeated or unknown names, and seeds that are used both for tuning and for reports."""
    methods = [method.name for method in definition.methods]
    conditions = [condition.name for condition in definition.conditions]
    axes = {axis.name: [point.label for point in axis.values] for axis in definition.axes}
    pairs = [*definition.exclude, *definition.only]
    tuning, quick = definition.tuning or Tuning(), definition.quick
    once: tuple[tuple[str, Iterable[object]], ...] = (
        ("method", methods),
        ("condition", conditions),
        ("axis", [axis.name for axis in definition.axes]),
        *((f"label of axis {axis!r}", labels) for axis, labels in axes.items()),
        ("figure", definition.figure),
        ("seed", definition.seeds),
        ("seed of quick", quick.seeds or ()),
        ("seed of tuning", tuning.seeds),
        ("rate of tuning", tuning.rates),
    )
    for what, names in once:
        _require_once(name, what, names)
    for what, used, allowed in (
        ("method", [pair[0] for pair in pairs], [*methods, ANY]),
        ("condition", [pair[1] for pair in pairs], [*conditions, ANY]),
        ("method of quick", quick.methods or [], methods),
        ("condition of quick", quick.conditions or [], conditions),
        ("condition of tuning", [tuning.condition] if tuning.condition else [], conditions),
        ("axis of tuning", tuning.axes, axes),
        ("axis of quick", quick.axes, axes),
    ):
        _require_known(name, what, used, allowed)
    for axis, labels in axes.items():
        _require_known(name, f"label of {axis!r}", [tuning.axes.get(axis, labels[0])], labels)
        _require_known(name, f"label of {axis!r}", quick.axes.get(axis, labels), labels)
    for method in definition.methods:
        _require_its_own(name, method)
    for kind in definition.figure:
        require_axes(f"experiment {name}", kind, axes)
    if definition.tuning is not None:
        _require_unreported(name, tuning, [*definition.seeds, *(quick.seeds or [])])


def _require_once(name: str, what: str, given: Iterable[object]) -> None:
    times = Counter(given)
    twice = next((repeated for repeated, count in times.items() if count > 1), None)
    if twice is not None:
        raise ConfigurationError(f"experiment {name}: {what} {twice!r} is repeated")


def _require_known(name: str, what: str, used: Iterable[str], known: Iterable[str]) -> None:
    unknown = next((used_name for used_name in used if used_name not in known), None)
    if unknown is not None:
        listed = ", ".join(known)
        raise ConfigurationError(
            f"experiment {name}: unknown {what} {unknown!r}; known are {listed}"
        )


def _require_its_own(name: str, method: Method) -> None:
    """Refuse a setting that a method of its kind does not look at."""
    allowed = {
        "cmfl": {"rules"},
        "theorem": {"rules", "options"},
        "federated": {"aggregator", "options", "pre", "participants"},
    }
    set_fields = {"rules", "aggregator", "options", "pre", "participants"} & method.model_fields_set
    unused = sorted(set_fields - allowed.get(method.kind, {"options"}))
    if unused:
        raise ConfigurationError(
            f"experiment {name}: method {method.name!r} is of kind {method.kind}, which takes no "
            f"{unused[0]}"
        )


def _require_unreported(name: str, tuning: Tuning, reported: Iterable[int]) -> None:
    both = sorted(set(tuning.seeds).intersection(reported))
    if both:
        raise ConfigurationError(
            f"experiment {name}: learning rates are tuned on seed {both[0]}, which is reported "
            f"too: a rate is never chosen on the seeds that it is judged by"
        )
