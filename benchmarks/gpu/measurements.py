"""The measurements of `python -m benchmarks.gpu`: training, scoring and a large round."""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.adapters import LENGTH, SAMPLES, make_base
from benchmarks.training import IMAGES, made_data
from clients.configuration.loading import checked
from clients.datasets.federated_data import DataForm, FederatedData, frozen_samples
from clients.datasets.sequences import next_tokens
from clients.devices import device_named
from clients.local_sgd import LocalTraining
from clients.models.registry import model_named
from clients.runs.open_run import open_memory_run
from clients.training.device_distances import torch_distances
from clients.training.engine_factory import open_engine
from clients.training.lockstep.execution_plan import plan as planned
from clients.training.port import Engine, TrainingJob
from clients.training.resident_updates import ResidentUpdates
from ledger.distances.fast import fast_distances, usable_cores
from ledger.protocol.encoding import sha256
from ledger.protocol.rules.distance import SQUARED
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from benchmarks.gpu.plans import AdapterRun, GpuPlan, ImageRun
    from clients.models.model import Model, ParameterVector
    from clients.runs.metrics import RoundMetrics
    from clients.training.port import PendingEvaluation, TrainedUpdate

Row = dict[str, Any]

CPU_CLIENTS = 4
"""Clients that also train on the processor, to compare with."""

_MEMORY_SHARE = 0.4
"""Of the free memory, for the updates of a round."""


def training(plan: GpuPlan, device: str, _left: float) -> list[Row]:
    """Return what each client's training costs, every update formed and hashed."""
    rows = [
        _trained(name, model_named(work.model, work.form, work.options), made_data(work),
                 work.settings, plan.repeats, device)
        for name, work in plan.works.items()
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        rows.append(_adapters_trained(plan.adapters, Path(folder), plan.repeats, device))
    return rows


def scoring(plan: GpuPlan, device: str, _left: float) -> Row:
    """Return what a round's distances cost on the device, and by the processor's kernel.

    The device computes them of updates that are there from their training, and of sent ones.
    """
    members, trainers, dimension = plan.scoring
    rng = np.random.default_rng(3)
    updates = {
        ClientId(place): rng.standard_normal(dimension, dtype=np.float32)
        for place in range(members + trainers)
    }
    arguments = SQUARED, None, updates, tuple(updates)[:members]
    computed_by = {
        "resident s": torch_distances(device_named(device), _resident(updates, device)),
        "sent s": torch_distances(device_named(device)),
        "processor s": fast_distances(usable_cores()),
    }
    times: dict[str, list[float]] = {name: [] for name in computed_by}
    for _ in range(plan.repeats + 1):
        for name, distances in computed_by.items():
            times[name].append(_seconds_of(lambda distances=distances: distances(*arguments)))  # type: ignore[misc]
    expected = computed_by["processor s"](*arguments)
    computed = computed_by["resident s"](*arguments)
    return {
        "members": members,
        "updates": len(updates),
        "d": dimension,
        "processor threads": usable_cores(),
        **{name: median(seconds[1:]) for name, seconds in times.items()},
        "largest relative difference": float(
            (np.abs(computed - expected)[expected > 0] / expected[expected > 0]).max()
        ),
    }


def large_round(plan: GpuPlan, device: str, _left: float) -> Row:
    """Return what a round at the size of paper-femnist costs, or its largest part that fits."""
    run = fitting(plan.paper_round, free_bytes())
    engines: list[TimedEngine] = []

    def watched(engine: Engine) -> Engine:
        engines.append(TimedEngine(engine))
        return engines[0]

    ends: list[float] = []

    def on_round(row: RoundMetrics) -> None:
        assert row.decided, f"round {row.round} was abandoned: there is nothing to time"
        ends.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder) / "femnist.npz"
        run.write_images(images)
        settings = run.settings(images, device)
        settings["machine"] |= {"ledger": "memory"}
        home = Path(folder) / "home"
        home.mkdir()
        with open_memory_run(home, "gpu", checked(settings), watched=watched) as opened:
            dimension = opened.population.model.dimension
            opened.go_on(on_round)
    rounds = [after - before for before, after in itertools.pairwise(ends)]
    return {
        "clients": run.clients,
        "of": plan.paper_round.clients,
        "d": dimension,
        "round s": median(rounds),
        "training s": median(engines[0].seconds[1:]),
    }


def fitting(run: ImageRun, free: int) -> ImageRun:
    """Return a run with at most as many clients as have room for their updates in memory.

    Args:
        run: the whole of it.
        free: bytes.
    """
    model = model_named(run.model, IMAGES, run.options)
    most = int(_MEMORY_SHARE * free) // (4 * model.dimension)
    return replace(run, clients=max(10, min(run.clients, most)))


def free_bytes() -> int:
    """Return the memory of this machine that nobody uses."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _resident(updates: Mapping[ClientId, NDArray[np.float32]], device: str) -> ResidentUpdates:
    """Return updates as their training leaves them on a device."""
    resident = ResidentUpdates(device_named(device), len(updates[ClientId(0)]), 2**40)
    rows = resident.reserve(len(updates))
    if rows is None:
        raise RuntimeError(f"{len(updates)} updates have no room on {device}")
    for place, update in enumerate(updates.values()):
        rows[place] = torch.from_numpy(update)
        resident.add(place, update)
    return resident


class TimedEngine(Engine):
    """An engine whose training is timed.

    Attributes:
        seconds: of each call.
    """

    def __init__(self, engine: Engine) -> None:
        self.distances = engine.distances
        self.seconds: list[float] = []
        self._engine = engine

    def train(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> list[TrainedUpdate]:
        """Return the update of every job; see `Engine.train`."""
        began = time.perf_counter()
        updates = self._engine.train(start, jobs)
        self.seconds.append(time.perf_counter() - began)
        return updates

    def evaluate(self, vector: ParameterVector, sets: Sequence[str]) -> PendingEvaluation:
        """Start to evaluate a parameter vector; see `Engine.evaluate`."""
        return self._engine.evaluate(vector, sets)

    def close(self) -> None:
        """End the engine."""
        self._engine.close()


def _adapters_trained(run: AdapterRun, base: Path, repeats: int, device: str) -> Row:
    """Return what the training of a transformer's adapters costs."""
    make_base(base, run.layers, run.width, run.vocabulary)
    tokens = run.vocabulary
    form = DataForm((LENGTH,), tokens, input_dtype="int64", vocabulary=tokens, task="causal-lm")
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, tokens, (SAMPLES, LENGTH)) for _ in range(run.clients)]
    train = tuple(frozen_samples(x, next_tokens("made", x)) for x in texts)
    model = model_named("hf", form, {"path": str(base), "targets": "c_attn"})
    settings = LocalTraining(learning_rate=0.5, batch_size=4, local_steps=2)
    data = FederatedData("made", form, train, train[0])
    return _trained("LoRA", model, data, settings, repeats, device)


def _trained(
    name: str,
    model: Model,
    data: FederatedData,
    settings: LocalTraining,
    repeats: int,
    device: str,
) -> Row:
    start = model.initial(np.random.default_rng(1))
    clients = range(len(data.train))
    jobs = [TrainingJob(client, sha256(b"job %d" % client)) for client in clients]
    path = planned(model, data, settings, device).path

    def measured(
        device: str, jobs: list[TrainingJob]
    ) -> tuple[list[float], list[NDArray[np.float32]]]:
        with open_engine(
            model, data, settings,
            device=device, workers=1, path=path, sets={}, rows=len(jobs),
        ) as engine:  # fmt: skip
            times = [_seconds_of(lambda: engine.train(start, jobs)) for _ in range(repeats + 1)]
            some = engine.train(start, jobs)[:CPU_CLIENTS]
            return times, [update.vector.copy() for update in some]

    is_card = device_named(device).type == "cuda"
    if is_card:
        torch.cuda.reset_peak_memory_stats(device)
    there, updates = measured(device, jobs)
    memory = torch.cuda.max_memory_reserved(device) if is_card else None
    here, expected = measured("cpu", jobs[:CPU_CLIENTS])
    return {
        "work": name,
        "path": path,
        "clients": len(jobs),
        "d": model.dimension,
        "first call s": there[0],
        "ms a client": 1e3 * median(there[1:]) / len(jobs),
        "processor ms a client": 1e3 * median(here[1:]) / min(CPU_CLIENTS, len(jobs)),
        "card memory, MiB": None if memory is None else memory / 2**20,
        "median relative difference": median(
            float(np.linalg.norm(update - other) / np.linalg.norm(other))
            for update, other in zip(updates, expected, strict=True)
        ),
    }


def _seconds_of(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
