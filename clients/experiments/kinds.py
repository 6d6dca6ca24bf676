"""Kinds of methods, and how each plays a run.

`cmfl` is played on the memory ledger: the rules and heads of a chain, without its cost. The others
have no ledger, and as many participants as CMFL activates or trains.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from clients.aggregators import Aggregation, FLTrust, aggregator_named, pre_aggregator_named
from clients.configuration.schema import Configuration
from clients.datasets.federated_data import frozen_samples, named_stream
from clients.experiments.baselines import (
    DecentralisedSettings,
    FederatedSettings,
    MethodRound,
    run_decentralised,
    run_federated,
)
from clients.experiments.costs import CommitteeTraffic, recorded_traffic
from clients.experiments.definition import Method, MethodKindName
from clients.experiments.rows import DECIMALS, CellSeconds, Extra, Traffic
from clients.models.model import ParameterVector
from clients.runs.metrics import RoundMetrics
from clients.runs.open_run import OpenedRun, open_measure, open_memory_run
from clients.runs.population import Population, populate, with_training_path
from clients.training.port import Engine, PendingEvaluation, TrainedUpdate, TrainingJob, Workload
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.parameters import parts_per_million, rounded_share
from ledger.protocol.payloads import FLOAT32
from ledger.protocol.types import ClientId

TRAINING = "training"
SCORING = "scoring"
EVALUATION = "evaluation"


class Stopwatch:
    """Adds up seconds by part, on a clock and on one of the process's CPU time."""

    def __init__(self) -> None:
        self.spent: defaultdict[str, float] = defaultdict(float)
        self._begun = self._opened = self._last = time.perf_counter()
        self._processor_begun = self._processor_last = time.process_time()

    @contextmanager
    def timing(self, part: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.spent[part] += time.perf_counter() - begun

    def lap(self) -> None:
        self._last, self._processor_last = time.perf_counter(), time.process_time()

    def watched(self, engine: Engine) -> Engine:
        """Return an engine to the same effect whose work is timed; rounds begin now."""
        self._opened = time.perf_counter()
        return TimedEngine(engine, self)

    def seconds(self, *, is_committee: bool) -> CellSeconds:
        """Return the seconds up to the last round, the rest as the ledger's or else as scoring."""
        parts = {part: self.spent[part] for part in (TRAINING, SCORING, EVALUATION)}
        rest = self._last - self._opened - sum(parts.values())
        if not parts[TRAINING]:  # a kind that trains without an engine
            parts = {}
        elif is_committee:
            parts["ledger"] = rest
        else:
            parts[SCORING] += rest
        return CellSeconds(
            wall=round(self._last - self._begun, DECIMALS),
            cpu=round(self._processor_last - self._processor_begun, DECIMALS),
            **{part: round(spent, DECIMALS) for part, spent in parts.items()},
        )


class TimedEngine(Engine):
    """An engine whose work is timed; another one does it, and its opener closes that."""

    def __init__(self, engine: Engine, stopwatch: Stopwatch) -> None:
        self._engine = engine
        self._stopwatch = stopwatch
        self.distances = stopwatch.timing(SCORING)(engine.distances)

    def train(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> list[TrainedUpdate]:
        with self._stopwatch.timing(TRAINING):
            return self._engine.train(start, jobs)

    def evaluate(self, vector: ParameterVector, sets: Sequence[str]) -> PendingEvaluation:
        timing = self._stopwatch.timing
        with timing(EVALUATION):
            return timing(EVALUATION)(self._engine.evaluate(vector, sets))

    def close(self) -> None:
        """Leave the other engine open: its opener closes it."""


RUN = "run"  # the name of the only run of a home
THEOREM = "benchmarks.paper.theorem"  # part of the repository, not of the installed package


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodRun:
    """One whole run, with n_k of each client in `samples`.

    `floor` is the accuracy of always answering the most frequent class; None without classes.
    `times_aggregated` is None where the rounds have it. `head` is of the ledger at the end, 0x-hex.
    """

    rounds: tuple[MethodRound, ...]
    floor: float | None
    samples: tuple[int, ...]
    malicious: frozenset[ClientId] = frozenset()
    times_aggregated: tuple[int, ...] | None = None
    head: str | None = None
    bytes: Traffic = field(default_factory=Traffic)
    extra: Extra = field(default_factory=Extra)


@dataclass(frozen=True, slots=True)
class MethodTask:
    """One run of a method: its configuration, with the learning rate chosen, and its options."""

    configuration: Configuration
    method: Method
    counts_bytes: bool
    stopwatch: Stopwatch
    on_round: Callable[[], None]


@dataclass(frozen=True, slots=True)
class MethodKind:
    """A kind of method: what refuses one before any data are loaded, and what plays a run."""

    require: Callable[[Configuration, Method], None]
    play: Callable[[MethodTask], MethodRun]


def kind_named(name: MethodKindName) -> MethodKind:
    """Return a kind of method; refuse the theorem where its module is not installed."""
    if name == "cmfl":
        # The configuration has refused all that CMFL cannot play.
        return MethodKind(lambda _configuration, _method: None, _play_committee)
    if name != "theorem":
        return MethodKind(_require_baseline, _play_baseline)
    try:
        return cast("MethodKind", import_module(THEOREM))
    except ModuleNotFoundError as error:
        if error.name is None or not THEOREM.startswith(error.name):
            raise
        raise ConfigurationError(
            f"kind {name!r} needs {THEOREM}, which is not installed; run it in a checkout of "
            "the repository"
        ) from error


def _play_committee(task: MethodTask) -> MethodRun:
    watched = task.stopwatch.watched
    with (
        tempfile.TemporaryDirectory() as folder,
        open_memory_run(Path(folder), RUN, task.configuration, watched=watched) as run,
    ):
        return play_run(run, task)


def play_run(run: OpenedRun, task: MethodTask) -> MethodRun:
    """Play every round of a run of CMFL that is at its beginning."""
    dimension = run.population.model.dimension
    traffic = CommitteeTraffic(dimension) if task.counts_bytes else None
    if traffic is not None:
        run.simulation.on_step = traffic.take

    def ended(row: RoundMetrics) -> None:
        if traffic is not None:
            traffic.close(row)
        task.on_round()

    rows = run.go_on(ended)
    rounds = (MethodRound(row, row.trained, row.accepted, row.served) for row in rows)
    return MethodRun(
        rounds=tuple(rounds),
        floor=run.measure.floor,
        samples=tuple(run.population.data.sample_counts),
        malicious=run.population.malicious,
        head=rows[-1].head,
        bytes=Traffic() if traffic is None else recorded_traffic(traffic.rounds, dimension),
    )


def _settings_of(
    configuration: Configuration, method: Method
) -> FederatedSettings | DecentralisedSettings:
    sizes = configuration.parameters(dimension=1)
    if method.kind == "federated":
        numbers = {"active": sizes.active, "trainers": sizes.trainers, "aggregated": sizes.accepted}
        clients = numbers[method.participants]
        pre = []
        for table in method.pre:
            name = table.get("name")
            if not isinstance(name, str):
                raise ConfigurationError("pre: each aggregator needs a name")
            options = {key: value for key, value in table.items() if key != "name"}
            pre.append(pre_aggregator_named(name, _counted(options, clients)))
        aggregator = aggregator_named(method.aggregator, _counted(method.options, clients))
        rules = Aggregation(aggregator, tuple(pre))
        return FederatedSettings(sizes.rounds, clients, sizes.server_rate, aggregation=rules)
    known = ("replicas", "segments") if method.kind == "gossip" else ()
    for name, value in method.options.items():
        if name not in known:
            listed = ", ".join(known) or "none"
            raise ConfigurationError(f"options.{name}: {method.kind} knows {listed}")
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConfigurationError(f"options.{name} = {value!s:.80}: must be a whole number")
    mixing = cast("Literal['brain-torrent', 'gossip']", method.kind)
    return DecentralisedSettings(sizes.rounds, sizes.active, mixing, **method.options)


def _require_baseline(configuration: Configuration, method: Method) -> None:
    _settings_of(configuration, method).require(configuration.protocol.clients)


def _play_baseline(task: MethodTask) -> MethodRun:
    """Play a run without a ledger; its clients send float32, whatever CMFL's do."""
    settings = _settings_of(task.configuration, task.method)
    population = populate(task.configuration)
    protocol = task.configuration.protocol.model_copy(update={"payload": FLOAT32.name})
    configuration = task.configuration.model_copy(update={"protocol": protocol})
    configuration = with_training_path(configuration, population)
    seed, initial, samples = configuration.seed, population.initial, population.data.sample_counts
    watched, participants = task.stopwatch.watched, settings.participants
    with open_measure(configuration, population, participants, watched) as measure:
        if isinstance(settings, FederatedSettings):
            memory = population.attack_memory(task.configuration)
            root = root_work(settings, population, configuration)
            attackers = population.attackers
            settings = replace(settings, attackers=attackers, memory=memory, root=root)
            declared = [client.samples for client in population.registry]
            played = run_federated(declared, measure.gauge, initial, settings, seed)
        else:
            settings = replace(settings, attackers=population.attackers)
            played = run_decentralised(samples, measure.gauge, initial, settings, seed)
        rounds = []
        for row in played:
            rounds.append(row)
            task.on_round()
    traffic = [row.traffic for row in rounds if row.traffic is not None]
    return MethodRun(
        rounds=tuple(rounds),
        floor=measure.floor,
        samples=tuple(samples),
        malicious=population.malicious,
        bytes=recorded_traffic(traffic, len(initial)) if task.counts_bytes else Traffic(),
        extra={"participants": participants},
    )


def root_work(
    settings: FederatedSettings, population: Population, configuration: Configuration
) -> Workload | None:
    """Return FLTrust's training on root data, drawn from the unpoisoned samples of all clients."""
    if not isinstance(settings.aggregation.aggregator, FLTrust):
        return None
    x, y = (np.concatenate(parts) for parts in zip(*population.clean.train, strict=True))
    size = min(settings.aggregation.aggregator.root, len(y))
    rows = named_stream(configuration.seed, "root data").choice(len(y), size, replace=False)
    samples, collate = [frozen_samples(x[rows], y[rows])], population.clean.collate
    training, device = configuration.training, configuration.machine.device
    return Workload(population.model, samples, {}, collate, training, device, path="plain")


def _counted(options: Mapping[str, Any], participants: int) -> dict[str, Any]:
    """Return options with a number in place of each `{share = x}`; f, m and s count updates."""
    numbers = dict(options)
    for key, value in options.items():
        if isinstance(value, dict):
            share = value.get("share")
            if set(value) != {"share"} or not isinstance(share, float):
                raise ConfigurationError(
                    f"{key} = {value!s:.80}: must be a number or {{share = x}}"
                )
            if key not in {"f", "m", "s"}:
                raise ConfigurationError(f"{key} = {value!s:.80}: does not count updates")
            numbers[key] = rounded_share(parts_per_million(f"{key}.share", share), participants)
    return numbers
