"""The TOML of an experiment, and the experiments by name.

A definition names no machine: data files are `{data}/NAME` in its settings, and the user names the
folder. `extends` names a packaged experiment whose values it overrides. A learning rate is never
chosen on the seeds that it is judged by.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ledger.io.home import read_text
from ledger.io.parsing import MAX_TOML_BYTES, parse_toml
from ledger.protocol.errors import ConfigurationError

DATA = "{data}"
"""What stands in a setting for the folder of the data."""

ANY = "*"
"""What stands in a pair for every method, or every condition."""

_FILE = re.compile(rf"{re.escape(DATA)}/([^\"']*)")

Name = Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[ -~]+$")]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Factor = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Setting = str | tuple[str, Any]
"""`section.key=value`; from Python a name and a value, where None takes a setting back."""
Pair = Annotated[list[str], Field(min_length=2, max_length=2)]
FigureKind = Literal[
    "curves", "table", "bars", "sweep", "grid", "heat", "clients", "samples", "attackers", "time",
    "spent", "growth", "bound",
]  # fmt: skip
FigureKinds = Annotated[
    tuple[FigureKind, ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    Field(strict=False),
]
MethodKindName = Literal["cmfl", "federated", "brain-torrent", "gossip", "theorem"]
Participants = Literal["active", "trainers", "aggregated"]


class _Table(BaseModel):
    """A table of the TOML file: no unknown keys, no guessing of types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Settings(_Table):
    """A table with settings."""

    settings: list[Setting] = []


class Method(_Settings):
    """A compared method.

    Attributes:
        name: in rows, figures and tables.
        kind: how it is played.
        rules: preset whose rules (strategy and distance) it takes; CMFL's own.
        settings: `section.key=value` of each, over the experiment's.
        aggregator: of a federated method, by its name in the registry.
        options: of the aggregator, or of a decentralised method. A table `{share = x}` in place of
            a number means floor(x n + 1/2), n the number of updates that the rule gets.
        pre: pre-aggregators, in their order: each a name, and its options.
        participants: how many clients a federated method trains in a round: as many as CMFL
            activates (C + n), trains (n) or aggregates (m).
        tuned: whether its learning rate is chosen where the experiment tunes any.
    """

    name: Name
    kind: MethodKindName = "cmfl"
    rules: str | None = None
    aggregator: str = "FedAvg"
    options: dict[str, Any] = {}
    pre: list[dict[str, Any]] = []
    participants: Participants = "trainers"
    tuned: bool = True


class ExperimentCondition(_Settings):
    """A condition of the comparison, such as an attack and the share of attackers.

    Attributes:
        name: in rows, figures and tables.
        settings: over the method's.
    """

    name: Name


class AxisPoint(_Settings):
    """One value of an axis.

    Attributes:
        label: in rows, figures and tables.
        settings: over the condition's.
    """

    label: Name


class Axis(_Table):
    """One direction of a grid.

    Attributes:
        name: in rows, figures and tables.
        values: in the order of figures.
    """

    name: Name
    values: Annotated[list[AxisPoint], Field(min_length=1)]


class Tuning(_Table):
    """The choice of each method's learning rate, once for all its cells.

    Attributes:
        rates: factors of the configured rate that are tried.
        seeds: on which they are tried; none of them is ever reported.
        condition: under which; the first one if not given.
        axes: at which label of each axis; the first one of an axis that is not named.
        settings: over all others, to try on fewer rounds, say.
    """

    rates: Annotated[list[Factor], Field(min_length=1)] = [0.25, 0.5, 1.0, 2.0]
    seeds: Annotated[list[Seed], Field(min_length=1)] = [100, 101, 102, 103]
    condition: str | None = None
    axes: dict[str, str] = {}
    settings: list[str] = []


class Quick(_Table):
    """The changes of `--quick`.

    Attributes:
        settings: over all others.
        seeds: instead of the experiment's; these if not given.
        tuning: whether learning rates are chosen; else the configured ones are taken.
        methods: names of those that are run; all if not given.
        conditions: names of those that are run; all if not given.
        axes: labels that are run, by axis; all of an axis that is not named.
    """

    settings: list[str] = []
    seeds: Annotated[list[Seed], Field(min_length=1)] | None = None
    tuning: bool = False
    methods: list[str] | None = None
    conditions: list[str] | None = None
    axes: dict[str, list[str]] = {}


class Definition(_Settings):
    """An experiment as its TOML has it.

    Attributes:
        title: one line for people.
        number: of the experiment in the paper's order; none for any other.
        figure: kind of its figure, or a list of kinds; those that suit its axes if not given.
        preset: of the configuration that all cells start from.
        settings: over the preset.
        seeds: of every cell.
        audited: how many of the first seeds of CMFL's cells are on a chain and audited.
        methods: what is compared.
        conditions: under what; without any there is one, named for what attacks.
        axes: of a grid; without any there is one point.
        tuning: how learning rates are chosen; the configured ones are taken if it is not given.
        quick: what `--quick` does instead.
        counts_bytes: whether rows say what is sent, by whom.
        exclude: pairs of method and condition that are left out; "*" matches any.
        only: pairs that alone are run; all if not given.
    """

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
        """The files that its settings name in the folder of the data, which somebody has to say."""
        points = (point for axis in self.axes for point in axis.values)
        tables: tuple[_Settings, ...] = (self, *self.methods, *self.conditions, *points)
        settings = (setting for table in tables for setting in table.settings)
        named = (_FILE.search(setting) for setting in settings if isinstance(setting, str))
        return tuple(dict.fromkeys(match[1] for match in named if match))


AXES_NEEDED: dict[FigureKind, int] = {"grid": 2, "sweep": 1, "attackers": 1, "growth": 1}
"""Axes without which a kind of figure cannot be drawn."""

GROWTH_AXIS, GROWTH_START = "size", "base"
"""The axis along which `growth` is drawn, and the label of its start."""


def require_axes(where: str, kind: FigureKind, axes: Mapping[str, Sequence[str]]) -> None:
    """Refuse a kind of figure that needs other axes."""
    needed = AXES_NEEDED.get(kind, 0)
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
    if any(str(setting).startswith("malice.") for setting in varied):
        return "attack as set"
    from clients.configuration.parsing import plain_values  # noqa: PLC0415 - it loads torch

    settings = tuple(setting for setting in definition.settings if isinstance(setting, str))
    malice = plain_values(definition.preset, settings=settings).get("malice", {})
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
