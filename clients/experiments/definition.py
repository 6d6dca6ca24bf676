"""The TOML of an experiment: what is compared, under which conditions, with which seeds.

A definition names no machine: data files are `{data}/NAME` in its settings, and the user names the
folder. `extends` names a packaged experiment whose values it overrides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ledger.protocol.errors import ConfigurationError

DATA = "{data}"
"""What stands in a setting for the folder of the data."""

ANY = "*"
"""What stands in a pair for every method, or every condition."""

_FILE = re.compile(rf"{re.escape(DATA)}/([^\"']*)")

Name = Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[ -~]+$")]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Factor = Annotated[float, Field(gt=0, allow_inf_nan=False)]
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
    """A table with settings: `section.key=value` of each."""

    settings: list[str] = []


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
        named = (_FILE.search(setting) for table in tables for setting in table.settings)
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
