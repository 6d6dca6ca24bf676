"""The TOML of an experiment, and the experiments by name.

A definition is the same on every machine: its settings name data files as `{data}/NAME`, and the
user names the folder. `extends` names a packaged experiment whose values it overrides. Methods of
`definitions/methods.toml` are named by any definition. No learning rate is chosen on seeds that a
report uses.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from clients.datasets.federated_data import first_error
from ledger.io.home import naming, read_text
from ledger.io.parsing import MAX_TOML_BYTES, parse_toml
from ledger.protocol.errors import ConfigurationError

DATA = "{data}"  # the folder of the data, in a setting
ANY = "*"  # every method, or every condition, in a pair
TOML = ".toml"
METHODS = "methods"  # the packaged file without an experiment: methods that any definition names
GROWTH_AXIS, GROWTH_START = "size", "base"
"""The axis along which `growth` is drawn, and the label of its start."""
Name = Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[ -~]+$")]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Factor = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Setting = str | tuple[str, Any]
"""`section.key=value`; from Python a name and a value, where None removes a setting."""
Pair = Annotated[list[str], Field(min_length=2, max_length=2)]
FigureKind = Literal[
    "curves", "table", "sweep", "grid", "heat", "clients", "samples", "attackers", "time",
    "spent", "growth", "bound",
]  # fmt: skip
FigureKinds = Annotated[
    tuple[FigureKind, ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    Field(strict=False),
]
MethodKindName = Literal["cmfl", "federated", "brain-torrent", "gossip", "theorem"]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Settings(_Table):
    settings: list[Setting] = []


class Method(_Settings):
    """A compared method.

    A federated method trains as many clients as CMFL activates (C + n), trains (n) or aggregates
    (m). In `options` a table `{share = x}` in place of a number counts updates: floor(x n + 1/2).
    """

    name: Name
    kind: MethodKindName = "cmfl"
    rules: str | None = None
    aggregator: str = "FedAvg"
    options: dict[str, Any] = {}
    pre: list[dict[str, Any]] = []
    participants: Literal["active", "trainers", "aggregated"] = "trainers"
    tuned: bool = True


class ExperimentCondition(_Settings):
    """A condition of the comparison, such as an attack and the share of attackers."""

    name: Name


class AxisPoint(_Settings):
    """One value of an axis."""

    label: Name


class Axis(_Table):
    """One direction of a grid, its values in the order of figures."""

    name: Name
    values: Annotated[list[AxisPoint], Field(min_length=1)]


class Tuning(_Table):
    """The choice of each method's learning rate, at the first condition and labels by default."""

    rates: Annotated[list[Factor], Field(min_length=1)] = [0.25, 0.5, 1.0, 2.0]
    seeds: Annotated[list[Seed], Field(min_length=1)] = [100, 101, 102, 103]
    condition: str | None = None
    axes: dict[str, str] = {}
    settings: list[Setting] = []


class Quick(_Table):
    """The changes of `--quick`; a part that it does not name runs in full."""

    settings: list[Setting] = []
    seeds: Annotated[list[Seed], Field(min_length=1)] | None = None
    tuning: bool = False
    methods: list[str] | None = None
    conditions: list[str] | None = None
    axes: dict[str, list[str]] = {}


class Definition(_Settings):
    """An experiment as its TOML has it; `docs/reference/experiments.md` has its keys."""

    title: Annotated[str, Field(min_length=1, max_length=200)]
    number: Annotated[int, Field(ge=1, le=99)] | None = None
    figure: FigureKinds = ()
    preset: str
    seeds: Annotated[list[Seed], Field(min_length=1)]
    audited: Annotated[int, Field(ge=0)] = 1
    methods: Annotated[list[Method], Field(min_length=1)]
    conditions: list[ExperimentCondition] = []
    axes: list[Axis] = []
    tuning: Tuning | None = None
    quick: Quick = Quick()
    counts_bytes: bool = False
    exclude: list[Pair] = []
    only: list[Pair] = []

    @property
    def files(self) -> tuple[str, ...]:
        points = (point for axis in self.axes for point in axis.values)
        tables: tuple[_Settings, ...] = (self, *self.methods, *self.conditions, *points)
        settings = (setting for table in tables for setting in table.settings)
        text = "\n".join(setting for setting in settings if isinstance(setting, str))
        return tuple(dict.fromkeys(re.findall(rf"{re.escape(DATA)}/([^\"'\n]*)", text)))


def require_axes(where: str, kind: FigureKind, axes: Mapping[str, Sequence[str]]) -> None:
    """Refuse a kind of figure that needs other axes."""
    needed = {"grid": 2, "sweep": 1, "attackers": 1, "growth": 1}.get(kind, 0)
    if len(axes) < needed:
        listed = ", ".join(axes) or "none"
        raise ConfigurationError(
            f"{where}: figure {kind!r} needs {needed} {'axis' if needed == 1 else 'axes'}; "
            f"there are {len(axes)} ({listed})"
        )
    if kind == "growth" and GROWTH_START not in axes.get(GROWTH_AXIS, ()):
        raise ConfigurationError(
            f"{where}: figure 'growth' needs an axis {GROWTH_AXIS!r} with a label {GROWTH_START!r}"
        )


@cache
def names() -> tuple[str, ...]:
    """Return the experiments that come with the package, in the order of their numbers."""
    found = _packaged().keys() - {METHODS}
    return tuple(sorted(found, key=lambda name: order_of(name, definition_named(name).number)))


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
    """Return values with the values that they extend; `false` removes one.

    A name means its method or condition.
    """
    own, base = dict(values), {}
    if "extends" in values:
        base = _extended(_values_of(str(own.pop("extends"))))
    for key in [key for key in ("methods", "conditions") if isinstance(own.get(key), list)]:
        tables = (*_packaged()[METHODS].get(key, []), *base.get(key, []))
        known = {table["name"]: table for table in tables}
        own[key] = [known.get(one, one) if isinstance(one, str) else one for one in own[key]]
    return {key: value for key, value in (base | own).items() if value is not False}


def _values_of(name: str) -> dict[str, Any]:
    if name not in _packaged().keys() - {METHODS}:
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
    """Return the experiment that a TOML text defines; an error names the first wrong value."""
    with naming(f"experiment {name}", ConfigurationError):
        values = parse_toml(text)
    return _definition(values, name)


def _definition(values: Mapping[str, Any], name: str) -> Definition:
    try:
        definition = Definition.model_validate(_extended(values))
    except ValidationError as error:
        raise ConfigurationError(f"experiment {name}: {first_error(error)}") from error
    if not definition.conditions:
        condition = ExperimentCondition(name=_only_condition(definition))
        definition = definition.model_copy(update={"conditions": [condition]})
    require_consistent(definition, name)
    return definition


def _only_condition(definition: Definition) -> str:
    points = (point for axis in definition.axes for point in axis.values)
    varied = [setting for table in (*definition.methods, *points) for setting in table.settings]
    if any(str(setting).startswith("malice.") for setting in varied):
        return "attack as set"
    from clients.configuration.parsing import plain_values  # noqa: PLC0415 - it loads torch

    settings = tuple(setting for setting in definition.settings if isinstance(setting, str))
    malice = plain_values(definition.preset, settings=settings).get("malice", {})
    return str(malice["attack"]) if malice.get("attack") else "none"


def require_consistent(definition: Definition, name: str) -> None:
    """Refuse repeated or unknown names, and seeds that are used both for tuning and for reports."""
    axes = {axis.name: [point.label for point in axis.values] for axis in definition.axes}
    for faults in (_repeated, _unknown, _misused):
        for fault in faults(definition, axes):
            raise ConfigurationError(f"experiment {name}: {fault}")
    for kind in definition.figure:
        require_axes(f"experiment {name}", kind, axes)


def _misused(definition: Definition, _axes: Mapping[str, list[str]]) -> Iterator[str]:
    taken = {
        "cmfl": {"rules"},
        "theorem": {"rules", "options"},
        "federated": {"aggregator", "options", "pre", "participants"},
    }
    for method in definition.methods:
        given = set().union(*taken.values()) & method.model_fields_set
        if unused := given - taken.get(method.kind, {"options"}):
            yield f"method {method.name!r} is of kind {method.kind}, which takes no {min(unused)}"
    tuned_on = [] if definition.tuning is None else definition.tuning.seeds
    if both := {*definition.seeds, *(definition.quick.seeds or [])}.intersection(tuned_on):
        yield (
            f"learning rates are tuned on seed {min(both)}, which is reported too: a rate is never "
            "chosen on the seeds that it is judged by"
        )


def _repeated(definition: Definition, axes: Mapping[str, list[str]]) -> Iterator[str]:
    tuning = definition.tuning or Tuning()
    once: tuple[tuple[str, Iterable[object]], ...] = (
        ("method", [method.name for method in definition.methods]),
        ("condition", [condition.name for condition in definition.conditions]),
        ("axis", [axis.name for axis in definition.axes]),
        *((f"label of axis {axis!r}", labels) for axis, labels in axes.items()),
        ("figure", definition.figure),
        ("seed", definition.seeds),
        ("seed of quick", definition.quick.seeds or ()),
        ("seed of tuning", tuning.seeds),
        ("rate of tuning", tuning.rates),
    )
    for what, given in once:
        for repeated, count in Counter(given).items():
            if count > 1:
                yield f"{what} {repeated!r} is repeated"


def _unknown(definition: Definition, axes: Mapping[str, list[str]]) -> Iterator[str]:
    methods = [method.name for method in definition.methods]
    conditions = [condition.name for condition in definition.conditions]
    pairs = [*definition.exclude, *definition.only]
    tuning, quick = definition.tuning or Tuning(), definition.quick
    known: list[tuple[str, Iterable[str], Iterable[str]]] = [
        ("method", [pair[0] for pair in pairs], [*methods, ANY]),
        ("condition", [pair[1] for pair in pairs], [*conditions, ANY]),
        ("method of quick", quick.methods or [], methods),
        ("condition of quick", quick.conditions or [], conditions),
        ("condition of tuning", [tuning.condition] if tuning.condition else [], conditions),
        ("axis of tuning", tuning.axes, axes),
        ("axis of quick", quick.axes, axes),
    ]
    for axis, labels in axes.items():
        used = [tuning.axes.get(axis, labels[0]), *quick.axes.get(axis, labels)]
        known.append((f"label of {axis!r}", used, labels))
    for what, given, allowed in known:
        for name in given:
            if name not in allowed:
                yield f"unknown {what} {name!r}; known are {', '.join(allowed)}"
