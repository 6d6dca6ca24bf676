"""One cell after another of what a TOML says, its configuration assembled and checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from clients.configuration.loading import load
from clients.configuration.parsing import plain_values, require_no_live_settings
from clients.configuration.schema import Configuration, ProtocolSection
from clients.datasets.registry import data_digest
from clients.experiments.cells import Cell, Trial, digest_of
from clients.experiments.definition import ANY, DATA, AxisPoint, Definition, Method, Quick, Tuning
from clients.experiments.kinds import kind_named
from ledger.protocol.errors import ConfigurationError, ParametersError
from ledger.protocol.parameters import (
    MAX_MEMBERS,
    MAX_TRAINERS,
    parts_per_million,
    rounded_share,
)

RULES = frozenset({"strategy", "distance"})
"""Settings of the protocol that a method's `rules` take from a preset."""


MOST_DIGITS = 6
"""A rate is kept in millionths."""


@dataclass(frozen=True, slots=True)
class CellFactory:
    """Makes cells and trials, each of them checked.

    Attributes:
        quick: what is done instead; nothing else unless it is run quickly.
        data: folder of the data; None where no file is needed.
    """

    name: str
    definition: Definition
    quick: Quick
    is_quick: bool
    data: Path | None
    data_digests: dict[str, Any] = field(default_factory=dict)

    @property
    def tuning(self) -> Tuning | None:
        """The choice of learning rates; None if there is none."""
        return None if self.is_quick and not self.quick.tuning else self.definition.tuning

    def points(self) -> Iterator[tuple[Method, str, tuple[AxisPoint, ...]]]:
        """Yield what there is one run of for each seed."""
        quick, definition = self.quick, self.definition
        axes = [
            [
                point
                for point in axis.values
                if point.label in quick.axes.get(axis.name, [point.label])
            ]
            for axis in definition.axes
        ]
        for condition in definition.conditions:
            for method in definition.methods:
                if (
                    self._is_meant(method.name, condition.name)
                    and method.name in (quick.methods or [method.name])
                    and condition.name in (quick.conditions or [condition.name])
                ):
                    for points in product(*axes):
                        yield method, condition.name, points

    def _is_meant(self, method: str, condition: str) -> bool:
        def names(pair: Sequence[str]) -> bool:
            return pair[0] in {method, ANY} and pair[1] in {condition, ANY}

        only = self.definition.only
        return (not only or any(map(names, only))) and not any(map(names, self.definition.exclude))

    def cell(
        self,
        method: Method,
        condition: str,
        points: tuple[AxisPoint, ...],
        seed: int,
        more: Sequence[str] = (),
    ) -> Cell:
        """Return a cell, its configuration checked."""
        labels = {
            axis.name: point.label for axis, point in zip(self.definition.axes, points, strict=True)
        }
        tuned = self.tuning is not None and method.tuned
        configuration = self._configuration(method, condition, points, seed, more)
        return Cell(
            experiment=self.name,
            number=self.definition.number,
            method=method,
            condition=condition,
            axes=labels,
            seed=seed,
            configuration=configuration,
            is_recorded=method.kind == "cmfl",
            is_tuned=tuned,
            counts_bytes=self.definition.counts_bytes,
            content=self._content(configuration, method, self.tuning if tuned else None),
        )

    @property
    def most_trials(self) -> int:
        """The number of trials if every method has some."""
        tuning = self.tuning
        each = 0 if tuning is None else len(tuning.rates) * len(tuning.seeds)
        return each * len(self.definition.methods)

    def trials(self) -> Iterator[Trial]:
        """Yield the runs by which learning rates are chosen."""
        tuning, definition = self.tuning, self.definition
        if tuning is None:
            return
        condition = tuning.condition or definition.conditions[0].name
        points = tuple(
            next(
                p
                for p in axis.values
                if p.label == tuning.axes.get(axis.name, axis.values[0].label)
            )
            for axis in definition.axes
        )
        meant = dict.fromkeys(method.name for method, _, _ in self.points())
        for method in definition.methods:
            if method.tuned and method.name in meant:
                cells = [
                    self.cell(method, condition, points, seed, tuning.settings)
                    for seed in tuning.seeds
                ]
                yield from (Trial(cell, factor) for factor in tuning.rates for cell in cells)

    def _configuration(
        self,
        method: Method,
        condition: str,
        points: tuple[AxisPoint, ...],
        seed: int,
        more: Sequence[str],
    ) -> Configuration:
        definition = self.definition
        settings = (
            *definition.settings,
            *(() if method.rules is None else _rules(method.rules)),
            *method.settings,
            *next(
                candidate.settings
                for candidate in definition.conditions
                if candidate.name == condition
            ),
            *(setting for point in points for setting in point.settings),
            *more,
            *self.quick.settings,
            f"seed={seed}",
            "machine.ledger=memory",
        )
        settings = tuple(setting.replace(DATA, str(self.data)) for setting in settings)
        try:
            configuration = load_that_fits(definition.preset, settings)
            kind_named(method.kind).require(configuration, method)
            require_no_live_settings(configuration)
        except (ConfigurationError, ParametersError) as error:
            labels = " ".join(point.label for point in points)
            raise ConfigurationError(
                f"experiment {self.name}: cell {method.name}, {condition}"
                f"{', ' if labels else ''}{labels}: {error}"
            ) from error
        return configuration

    def _content(self, configuration: Configuration, method: Method, tuning: Tuning | None) -> str:
        """Return the digest of all that a cell's result follows from, but its seed."""
        choice = configuration.data.choice()
        # A file is read for its digest once, not for every cell.
        if repr(choice) not in self.data_digests:
            self.data_digests[repr(choice)] = data_digest(choice)
        left_out = {"seed", "machine", "data"}
        labels = {"name", "settings", "rules", "tuned"}
        # Without defaults: a setting that there is one day, and that a cell does not use, changes
        # no digest; one whose default changes shows in the heads that an audit asks for.
        settings = configuration.model_dump(mode="json", exclude=left_out, exclude_defaults=True)
        return digest_of(
            {
                "configuration": settings,
                "data": self.data_digests[repr(choice)],
                "method": method.model_dump(mode="json", exclude=labels),
                "tuning": None if tuning is None else tuning.model_dump(mode="json"),
            }
        )


def _rules(preset: str) -> tuple[str, ...]:
    """Return the rules of a preset as settings; one that it leaves open is left open."""
    rules = load(preset).protocol.model_dump(include=set(RULES))
    return tuple(
        f"protocol.{name}={'' if value is None else value}" for name, value in sorted(rules.items())
    )


def load_that_fits(preset: str, settings: tuple[str, ...]) -> Configuration:
    """Return the configuration of a preset with settings on top.

    The sizes of a round follow from rates: C = floor(ω a + 1/2) of a active clients, and the other
    n have to fill the next committee. At ω = .5 that needs an even a: 59 of 297 clients give C = 30
    and n = 29, and 60 would do.
    """
    try:
        return load(preset, settings=settings)
    except ParametersError as error:
        rate = _rate_that_fits(preset, settings)
        if rate is None:
            raise ConfigurationError(str(error)) from error
        raise ConfigurationError(f"{error}; protocol.active_rate = {rate} fits") from error


def _rate_that_fits(preset: str, settings: tuple[str, ...]) -> str | None:
    """Return the rate of the nearest number of active clients that the protocol takes."""
    values = plain_values(preset, settings=settings)["protocol"]
    clients = values["clients"]
    rate = values.get("active_rate", ProtocolSection.model_fields["active_rate"].default)
    requested = rounded_share(parts_per_million("active_rate", rate), clients)
    most = min(clients, MAX_MEMBERS + MAX_TRAINERS)
    # Of two as near, the larger: fewer than are asked for make a smaller committee.
    nearest = sorted(range(1, most + 1), key=lambda active: (abs(active - requested), -active))
    for active in nearest:
        fitting_rate = rate_of(active, clients)
        try:
            load(preset, settings=(*settings, f"protocol.active_rate={fitting_rate}"))
        except ParametersError:
            continue
        return fitting_rate
    return None


def rate_of(active: int, clients: int) -> str:
    """Return the shortest decimal whose share of all clients is `active`."""
    for digits in range(1, MOST_DIGITS):
        rate = round(active / clients, digits)
        if rounded_share(parts_per_million("active_rate", rate), clients) == active:
            return str(rate)
    return str(round(active / clients, MOST_DIGITS))
