"""The cells of an experiment: method x condition x point of the axes x seed, each checked.

A cell's digest changes with everything that determines its result: not with paths, workers or
devices.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count as count_from
from itertools import islice, product
from pathlib import Path
from typing import Any, TypeAlias

from clients.configuration import parsing
from clients.configuration.loading import checked, load
from clients.configuration.schema import Configuration, ProtocolSection
from clients.datasets.published import FILES
from clients.datasets.registry import data_digest
from clients.experiments.definition import ANY, DATA, AxisPoint, Definition, Method, Quick, Setting
from clients.experiments.kinds import kind_named
from clients.experiments.rows import CellRow
from ledger.io.extras import require_extra
from ledger.protocol.errors import ConfigurationError, ParametersError
from ledger.protocol.parameters import MAX_MEMBERS, MAX_TRAINERS, parts_per_million, rounded_share

MAX_CELLS = 20_000
LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of an experiment, its configuration on the memory ledger before a rate is chosen.

    `is_recorded`: the run goes over a chain, with an audit. `is_tuned`: it has the learning rate
    that was chosen for its method. `content` is the digest of its inputs without the seed.
    """

    experiment: str
    number: int | None
    method: Method
    condition: str
    axes: dict[str, str]
    seed: int
    configuration: Configuration
    is_recorded: bool
    is_tuned: bool
    counts_bytes: bool
    content: str

    @property
    def name(self) -> str:
        """Its name, unique in its experiment, and a file's name."""
        labels = [f"{axis}-{label}" for axis, label in self.axes.items()]
        parts = (self.method.name, self.condition, *labels)
        point = "__".join(re.sub(r"[^A-Za-z0-9.+]+", "-", part).strip("-.") for part in parts)
        return f"{point}__seed{self.seed}"

    @property
    def digest(self) -> str:
        return self.digest_with(self.seed)

    @property
    def rounds(self) -> int:
        return self.configuration.protocol.rounds

    def digest_with(self, seed: int) -> str:
        return digest_of([self.content, seed])

    def at_rate(self, factor: float) -> Cell:
        training = self.configuration.training
        changed = training.model_copy(update={"learning_rate": training.learning_rate * factor})
        configuration = self.configuration.model_copy(update={"training": changed})
        return replace(self, configuration=configuration)


@dataclass(frozen=True, slots=True)
class Job:
    """A cell to play with a factor of its learning rate; a trial only serves to choose one."""

    cell: Cell
    factor: float
    is_trial: bool = False

    @property
    def name(self) -> str:
        return f"tuning__{self.cell.name}__rate{self.factor:g}" if self.is_trial else self.cell.name

    @property
    def digest(self) -> str:
        return digest_of([self.cell.digest, self.factor])


def digest_of(value: object) -> str:
    """Return the sha256 of a value's canonical JSON, 0x-hex."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"0x{hashlib.sha256(text.encode()).hexdigest()}"


_Point: TypeAlias = tuple[Method, str, tuple[AxisPoint, ...]]  # method, condition, axis values


@dataclass(frozen=True, slots=True)
class CellFactory:
    """Makes cells and trials, each of them checked, from files in the folder of the data."""

    name: str
    definition: Definition
    quick: Quick
    data: Path | None
    data_digests: dict[str, Any] = field(default_factory=dict)

    def points(self) -> Iterator[_Point]:
        quick, definition = self.quick, self.definition
        axes = [
            [each for each in axis.values if each.label in quick.axes.get(axis.name, [each.label])]
            for axis in definition.axes
        ]

        def names(pair: Sequence[str], method: str, condition: str) -> bool:
            return pair[0] in {method, ANY} and pair[1] in {condition, ANY}

        only, exclude = definition.only or [[ANY, ANY]], definition.exclude
        for condition, method in product(definition.conditions, definition.methods):
            if (
                any(names(pair, method.name, condition.name) for pair in only)
                and not any(names(pair, method.name, condition.name) for pair in exclude)
                and method.name in (quick.methods or [method.name])
                and condition.name in (quick.conditions or [condition.name])
            ):
                for points in product(*axes):
                    yield method, condition.name, points

    def cell(self, point: _Point, seed: int, more: Sequence[Setting] = ()) -> Cell:
        method, condition, points = point
        axes = (axis.name for axis in self.definition.axes)
        configuration = self._configuration(point, seed, more)
        return Cell(
            experiment=self.name,
            number=self.definition.number,
            method=method,
            condition=condition,
            axes={axis: each.label for axis, each in zip(axes, points, strict=True)},
            seed=seed,
            configuration=configuration,
            is_recorded=method.kind == "cmfl",
            is_tuned=self.definition.tuning is not None and method.tuned,
            counts_bytes=self.definition.counts_bytes,
            content=self._content(configuration, method),
        )

    def trials(self) -> Iterator[Job]:
        tuning, definition = self.definition.tuning, self.definition
        if tuning is None:
            return
        condition = tuning.condition or definition.conditions[0].name
        points = []
        for axis in definition.axes:
            label = tuning.axes.get(axis.name, axis.values[0].label)
            points.append(next(point for point in axis.values if point.label == label))
        meant = {method.name for method, _, _ in self.points()}
        for method in definition.methods:
            if method.tuned and method.name in meant:
                place = method, condition, tuple(points)
                cells = [self.cell(place, seed, tuning.settings) for seed in tuning.seeds]
                for rate, cell in product(tuning.rates, cells):
                    yield Job(cell, rate, is_trial=True)

    def _configuration(self, point: _Point, seed: int, more: Sequence[Setting]) -> Configuration:
        method, condition, points = point
        definition, rules = self.definition, {}
        conditions = {each.name: each.settings for each in definition.conditions}
        if method.rules is not None:  # a rule that the preset leaves open stays open
            protocol = load(method.rules).protocol
            rules = protocol.model_dump(mode="json", include={"distance", "strategy"})
        settings = (
            *definition.settings,
            *((f"protocol.{name}", value) for name, value in sorted(rules.items())),
            *method.settings,
            *conditions[condition],
            *(setting for point in points for setting in point.settings),
            *more,
            *self.quick.settings,
            ("seed", seed),
            ("machine.ledger", "memory"),
        )
        data = str(self.data)
        try:
            configuration = load_that_fits(
                definition.preset,
                [one.replace(DATA, data) if isinstance(one, str) else one for one in settings],
            )
            kind_named(method.kind).require(configuration, method)
            parsing.require_no_live_settings(configuration)
        except (ConfigurationError, ParametersError) as error:
            labels = " ".join(point.label for point in points)
            raise ConfigurationError(
                f"experiment {self.name}, cell {method.name}, "
                f"{condition}{', ' if labels else ''}{labels}: {error}"
            ) from error
        return configuration

    def _content(self, configuration: Configuration, method: Method) -> str:
        choice = configuration.data.choice()
        # A file is read for its digest once, not for every cell.
        if repr(choice) not in self.data_digests:
            self.data_digests[repr(choice)] = data_digest(choice)
        left_out = {"seed", "machine", "data"}
        labels = {"name", "settings", "rules", "tuned"}
        tuning = self.definition.tuning if method.tuned else None
        # Without defaults: a new setting that a cell does not use keeps its digest. A changed
        # default changes the heads that an audit asks for.
        settings = configuration.model_dump(mode="json", exclude=left_out, exclude_defaults=True)
        return digest_of(
            {
                "configuration": settings,
                "data": self.data_digests[repr(choice)],
                "method": method.model_dump(mode="json", exclude=labels),
                "tuning": None if tuning is None else tuning.model_dump(mode="json"),
            }
        )


def values_of(preset: str, settings: Iterable[Setting]) -> dict[str, Any]:
    """Return the plain values of a preset with settings on top, tables key by key."""
    values, keys = parsing.plain_values(preset), set()
    for setting in settings:
        if isinstance(setting, str):
            parsing.with_settings(values, (setting,))
            keys.add(setting.partition("=")[0].strip())
        else:
            _put(values, *setting)
            keys.add(setting[0])
    parsing.imply_file(values, keys)
    return values


def _put(values: dict[str, Any], name: str, value: object) -> None:
    if isinstance(value, Mapping):
        for key, single in value.items():
            _put(values, f"{name}.{key}", single)
        return
    for each in (None, value):  # the new value is the last of its table
        parsing.put_setting(values, name, each)


def load_that_fits(preset: str, settings: Sequence[Setting]) -> Configuration:
    """Return the configuration of a preset with settings on top; an error names a rate that fits.

    C = floor(ω a + 1/2) of a active clients are members, and the other n have to fill the next
    committee. At ω = 0.5 an odd a does not fit: 59 clients give C = 30 and n = 29.
    """
    values = values_of(preset, settings)
    try:
        return checked(values)
    except ParametersError as error:
        protocol = values["protocol"]
        clients, hint = protocol["clients"], ""
        rate = protocol.get("active_rate", ProtocolSection.model_fields["active_rate"].default)
        requested = rounded_share(parts_per_million("active_rate", rate), clients)
        counts = range(1, min(clients, MAX_MEMBERS + MAX_TRAINERS) + 1)
        # If two are as near, the larger: fewer clients make a smaller committee.
        for active in sorted(counts, key=lambda active: (abs(active - requested), -active)):
            fitting = rate_of(active, clients)
            with suppress(ParametersError):
                checked({**values, "protocol": {**protocol, "active_rate": fitting}})
                hint = f"; protocol.active_rate = {fitting} fits"
                break
        raise ConfigurationError(f"{error}{hint}") from error


def rate_of(active: int, clients: int) -> float:
    """Return the shortest decimal whose share of all clients is `active`."""
    rates = [round(active / clients, digits) for digits in range(1, 7)]  # to a millionth
    shares = (rounded_share(parts_per_million("active_rate", rate), clients) for rate in rates)
    return next((r for r, share in zip(rates, shares, strict=True) if share == active), rates[-1])


@dataclass(frozen=True)
class ExperimentPlan:
    """All runs of an experiment, the trials of learning rates before the cells."""

    experiment: str
    definition: Definition
    is_quick: bool
    cells: tuple[Cell, ...]
    trials: tuple[Job, ...] = ()
    data: Path | None = None

    def __post_init__(self) -> None:
        """Refuse equal names and long ones: a name also names a folder."""
        for what, names, reason in (
            ("trials", self.trials, "rates of tuning must differ in their first six digits"),
            ("cells", self.cells, "their names differ only in signs that a file's name has not"),
        ):
            (name, times), *_ = [*Counter(each.name for each in names).most_common(1), ("", 0)]
            if times > 1:
                raise ConfigurationError(
                    f"experiment {self.experiment} has two {what} named {name!r}; {reason}"
                )
        longest = max((cell.name for cell in self.cells), key=len, default="")
        if len(longest) > LONGEST_NAME:
            raise ConfigurationError(
                f"experiment {self.experiment}: the name of cell {longest!r} has over "
                f"{LONGEST_NAME} letters"
            )

    def cell(self, name: str) -> Cell:
        named = {cell.name: cell for cell in self.cells}
        if name not in named:
            shown = ", ".join(list(named)[:3])
            raise ConfigurationError(
                f"experiment {self.experiment} has no cell {name!r}; it has {len(self.cells)}, "
                f"such as {shown} (cmfl experiment list {self.experiment})"
            )
        return named[name]

    @cached_property
    def _places(self) -> dict[tuple[object, ...], Cell]:
        places = ((c.method.name, c.condition, *sorted(c.axes.items())) for c in self.cells)
        return dict(zip(places, self.cells, strict=True))

    def row_digest(self, row: CellRow) -> str | None:
        """Return the digest that a row must have with its seed, 0x-hex; None for another method."""
        cell = self._places.get((row.method, row.condition, *sorted(row.axes.items())))
        return None if cell is None else cell.digest_with(row.seed)


def plan_experiment(
    name: str,
    definition: Definition,
    *,
    seeds: int | None = None,
    is_quick: bool = False,
    data: Path | None = None,
) -> ExperimentPlan:
    """Return the runs of an experiment with `seeds` seeds, None for its own; do not load data."""
    name, definition = playable(name, definition, data, is_quick=is_quick)
    quick = definition.quick if is_quick else Quick()
    tuning = None if is_quick and not quick.tuning else definition.tuning
    played = definition.model_copy(update={"tuning": tuning})
    maker = CellFactory(name, played, quick, data)
    # A few axes may span more points than memory holds.
    points = list(islice(maker.points(), MAX_CELLS + 1))
    if not points:
        raise ConfigurationError(f"experiment {name}: has no pair of method and condition")
    every = _seeds(definition, quick, seeds)
    if len(points) * len(every) > MAX_CELLS:
        raise ConfigurationError(f"experiment {name} has over {MAX_CELLS} cells")
    tried = 0 if tuning is None else len(tuning.rates) * len(tuning.seeds)
    if tried * len(definition.methods) > MAX_CELLS:
        raise ConfigurationError(f"experiment {name} tries over {MAX_CELLS} learning rates")
    first = [maker.cell(point, every[0]) for point in points]
    # Seed by seed, so that what was cut short has whole seeds.
    audited = every[: definition.audited]
    cells = [
        replace(
            cell,
            seed=seed,
            configuration=cell.configuration.model_copy(update={"seed": seed}),
            is_recorded=cell.is_recorded and seed in audited,
        )
        for seed in every
        for cell in first
    ]
    return ExperimentPlan(name, definition, is_quick, tuple(cells), tuple(maker.trials()), data)


def playable(
    name: str, definition: Definition, data: Path | None, *, is_quick: bool
) -> tuple[str, Definition]:
    """Return an experiment as it can be played here; refuse one that lacks a file or a package.

    Without a folder of data, the small version takes scikit-learn's digits for images. It has
    another name, so that its rows are not mistaken for rows of the images.
    """
    of_images = ({"digits_by_writer.npz"}, {"femnist_mini.npz"})
    if is_quick and data is None and set(definition.files) in of_images:
        settings = [setting for setting in definition.settings if DATA not in setting]
        # Divided digits have no test of each client.
        settings += ["data.name=digits", "evaluation.per_client=false"]
        name, definition = f"{name}-on-digits", definition.model_copy(update={"settings": settings})
    if missing := missing_files(definition, data):
        where, folder = "say with --data which folder has it", "DIR"
        if data is not None:
            where, folder = f"there is no {data / missing[0]}", shlex.quote(str(data))
        if {*missing} <= {*FILES}:
            wanted = missing[0] if len(missing) == 1 else "all"
            where += f"; fetch it with: cmfl data fetch {wanted} {folder}"
        raise ConfigurationError(f"experiment {name} reads {' and '.join(missing)}: {where}")
    try:
        for method in definition.methods:
            kind_named(method.kind)
        if any(file.endswith(".parquet") for file in definition.files):
            require_extra("data", "Parquet files need")
    except ConfigurationError as error:
        raise ConfigurationError(f"experiment {name}: {error}") from error
    return name, definition


def missing_files(definition: Definition, data: Path | None) -> tuple[str, ...]:
    """Return the files that an experiment reads and that are not there."""
    return tuple(name for name in definition.files if data is None or not (data / name).is_file())


def _seeds(definition: Definition, quick: Quick, count: int | None) -> list[int]:
    named = list(quick.seeds or definition.seeds)
    if count is None:
        return named
    tuned_on = set() if definition.tuning is None else set(definition.tuning.seeds)
    following = (seed for seed in count_from(max(named) + 1) if seed not in tuned_on)
    return [*named, *islice(following, max(0, count - len(named)))][:count]
