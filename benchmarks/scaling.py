"""Scaling of the engine with clients, updates, their length, rounds and workers.

`python -m benchmarks.scaling` measures every line in its own process, on made images and the
plain path: what is measured is the engine, not the model. CPU seconds of the parent are those of a
round divided by its updates. Memory is what the parent and its workers hold together, pages that
they share counted once, at the highest of samples taken during one more round; `copies` leaves out
what they hold when every worker has trained one client: interpreters, torch, data and models. It
tells something where the updates are large.
`--quick` takes one round of each, and leaves the large ones out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table
from torch import nn

from benchmarks.contention import gemm_rate, machine
from clients.datasets.federated_data import DataForm, FederatedData, frozen_samples
from clients.local_sgd import LocalTraining
from clients.models.model import model_of
from clients.models.registry import model_named
from clients.training.engine_factory import open_engine
from clients.training.port import TrainingJob
from ledger.protocol.encoding import sha256

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from clients.models.model import Model, Option

RESULTS = Path(__file__).parent / "results"
FORM = DataForm((1, 28, 28), 62)
W1L = 6_603_710
"""Length of the updates of LEAF's network for FEMNIST, the model of this dimension."""

_SAMPLES = 100
_WIDTH = 160
_SAMPLE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class ScalingPoint:
    """One line of the table.

    Attributes:
        clients: K, all of whom have data.
        updates: clients that train in a round: n trainers and C members.
        dimension: d, about.
        workers: processes that train.
        rounds: measured, after one that is not.
        steps: SGD steps of each client, of 10 samples.
    """

    clients: int = 200
    updates: int = 40
    dimension: int = 100_000
    workers: int = 2
    rounds: int = 3
    steps: int = 10


POINTS = (
    ScalingPoint(workers=1),
    ScalingPoint(),
    ScalingPoint(clients=50),
    ScalingPoint(clients=3500),
    ScalingPoint(updates=10),
    ScalingPoint(updates=160),
    ScalingPoint(dimension=10_000),
    ScalingPoint(dimension=1_000_000),
    ScalingPoint(dimension=10_000, updates=10, rounds=1000, steps=1),
    ScalingPoint(dimension=W1L, updates=100, workers=1, rounds=1),
    ScalingPoint(dimension=W1L, updates=100),
)
_QUICK = 8


def main() -> None:
    """Measure every point, print the table and keep it; or one of them, for the process above."""
    arguments = _arguments()
    if arguments.point is not None:
        print(json.dumps(_measured(ScalingPoint(**json.loads(arguments.point)))))
        return
    points = (
        [replace(quick_point, rounds=1) for quick_point in POINTS[:_QUICK]]
        if arguments.quick
        else POINTS
    )
    before = gemm_rate()
    rows = [_in_a_process(point) for point in points]
    document = {"machine": machine(), "gflops": [before, gemm_rate()], "points": rows}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "scaling.json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    table = Table("", *(str(index + 1) for index in range(len(rows))), title="engine, plain path")
    for key in rows[0]:
        table.add_row(key, *(f"{row[key]:,}" for row in rows))
    Console(width=_WIDTH).print(table)


def _in_a_process(point: ScalingPoint) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.scaling", "--point", json.dumps(asdict(point))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def _measured(point: ScalingPoint) -> dict[str, Any]:
    model = _model(point.dimension)
    data, start = _data(point), model.initial(np.random.default_rng(0))
    training = LocalTraining(learning_rate=0.05, batch_size=10, local_steps=point.steps)
    begun = time.perf_counter()
    with open_engine(
        model,
        data,
        training,
        device="cpu",
        workers=point.workers,
        path="plain",
        sets={"test": data.test},
        rows=point.updates,
    ) as engine:
        # A worker that takes jobs one by one has trained one after this, or two.
        engine.train(start, _jobs(point, 0)[: point.workers])
        opened, alone = time.perf_counter() - begun, _megabytes()
        engine.train(start, _jobs(point, 0))
        walls, parents, everybody, first = [], [], [], _megabytes()
        for number in range(1, 1 + point.rounds):
            clocks = time.perf_counter(), time.process_time(), _cpu_seconds()
            engine.train(start, _jobs(point, number))
            walls.append(time.perf_counter() - clocks[0])
            parents.append(time.process_time() - clocks[1])
            everybody.append(_cpu_seconds() - clocks[2])
        last = _megabytes()
        # A round of its own: to look at memory costs the parent more than its part of the round.
        with _highest_memory() as highest:
            engine.train(start, _jobs(point, 0))
    row_megabytes = 4e-6 * model.dimension
    grown = max(highest) - alone + point.workers * row_megabytes
    return {
        "K": point.clients,
        "updates": point.updates,
        "d": model.dimension,
        "workers": point.workers,
        "rounds": point.rounds,
        "open s": round(opened, 2),
        "round s": round(median(walls), 4),
        "CPU s": round(median(everybody), 2),
        "parent ms per update": round(1e3 * median(parents) / point.updates, 3),
        "MB of updates": round(point.updates * row_megabytes, 1),
        "MB before": round(alone),
        "MB at most": round(max(highest)),
        "MB of growth over the rounds": round(last - first, 1),
        "copies": round(grown / (point.updates * row_megabytes), 3),
    }


def _jobs(point: ScalingPoint, number: int) -> list[TrainingJob]:
    seed = sha256(b"round %d" % number)
    chosen = np.random.default_rng(number).choice(point.clients, point.updates, replace=False)
    return [TrainingJob(int(client), seed) for client in chosen]


def _data(point: ScalingPoint) -> FederatedData:
    rng = np.random.default_rng(0)
    shape = _SAMPLES, *FORM.input_shape
    clients = [
        frozen_samples(rng.random(shape, dtype=np.float32), rng.integers(0, 62, _SAMPLES))
        for _ in range(point.clients)
    ]
    return FederatedData("made", FORM, tuple(clients), clients[0])


def _model(dimension: int) -> Model:
    if dimension == W1L:
        return model_named("leaf_cnn", FORM, {"hidden": 2048})
    return model_of(_perceptron, FORM, {"hidden": max(1, dimension // (784 + 62 + 1))})


def _perceptron(_form: DataForm, options: Mapping[str, Option]) -> nn.Module:
    hidden = int(options["hidden"])
    layers = nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, 62)
    return nn.Sequential(nn.Flatten(), *layers)


@contextmanager
def _highest_memory() -> Iterator[list[float]]:
    """Yield a list that is filled with samples of the used megabytes."""
    highest: list[float] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_SAMPLE_SECONDS):
            highest.append(_megabytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield highest
    finally:
        ended.set()
        watcher.join()
        highest.append(_megabytes())


def _family() -> list[int]:
    """Return this process and its children."""
    own = os.getpid()
    children = Path(f"/proc/{own}/task/{own}/children").read_text("ascii")
    return [own, *map(int, children.split())]


def _megabytes() -> float:
    """Return what the family holds in memory, pages that they share counted once."""
    total = 0
    for pid in _family():
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total * 1024 / 1e6


def _cpu_seconds() -> float:
    ticks = 0
    for pid in _family():
        fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round, no large points")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
