"""Cost of local training on one thread: our two paths, a plain torch loop, and the floor.

`python -m benchmarks.training` trains the same clients on the same made samples in turn by a loop
over `nn.Module` and `torch.optim.SGD` as usually written, by our plain path and by our lockstep
path, every update formed, and gives medians of CPU and wall milliseconds for each client. A
product of 1024 × 1024 matrices before and after says how calm the machine was.

The floor is arithmetic alone: multiplications and additions of forward and backward passes by
what one core reaches now, large products for linear layers and LSTMs (2048 × 2048), and the
forward pass of LEAF's second convolution with 10 images for convolutions. No floor counts pooling,
ReLU, reading and writing; that of a linear layer holds for one that multiplies as many rows as it
likes.

Errors are relative to the same training in float64, of whole updates: a ReLU or a pool whose
inputs are nearly equal may turn the other way on either path, which is what the largest shows.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch.nn import functional

from benchmarks.contention import gemm_rate, machine
from clients.datasets.federated_data import DataForm, FederatedData, as_stored, frozen_samples
from clients.devices import reproducible
from clients.local_sgd import LocalTraining, batches
from clients.models.model import load_vector, trainable
from clients.models.registry import model_named
from clients.training.lockstep.execution_plan import plan
from clients.training.lockstep.layers import Convolution, Linear
from clients.training.lockstep.tracing import chain_of
from clients.training.lockstep.trainer import LockstepTrainer
from clients.training.plain_trainer import PlainTrainer
from clients.training.port import TrainingJob
from ledger.protocol.encoding import sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from clients.models.model import Model, Option

RESULTS = Path(__file__).parent / "results"
IMAGES = DataForm((1, 28, 28), 62)
CHARACTERS = DataForm((80,), 80, input_dtype="int64", vocabulary=80)

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TrainingWork:
    """One training workload.

    Attributes:
        model: its name.
        options: its settings.
        form: of the data.
        samples: of each client.
        settings: how each client trains.
        clients: how many train.
        exact: how many of them are trained in float64, too.
    """

    model: str
    options: Mapping[str, Option]
    form: DataForm
    samples: int
    settings: LocalTraining
    clients: int
    exact: int


def _steps(steps: int, batch: int, rate: float) -> LocalTraining:
    return LocalTraining(learning_rate=rate, batch_size=batch, local_steps=steps)


WORKS = {
    "W1L": TrainingWork("leaf_cnn", {"hidden": 2048}, IMAGES, 100, _steps(10, 10, 0.05), 10, 4),
    "W1S": TrainingWork("leaf_cnn", {"hidden": 512}, IMAGES, 100, _steps(10, 10, 0.05), 20, 10),
    "W2": TrainingWork(
        "shakespeare_lstm", {"hidden": 100}, CHARACTERS, 200, _steps(20, 10, 0.5), 2, 2
    ),
    "W3": TrainingWork("softmax", {}, IMAGES, 100, _steps(10, 10, 0.05), 100, 20),
    "digits": TrainingWork("softmax", {}, DataForm((1, 8, 8), 10), 24, _steps(5, 16, 0.5), 60, 20),
    "digits cnn": TrainingWork("cnn", {}, DataForm((1, 8, 8), 10), 24, _steps(5, 16, 0.1), 60, 20),
}


def main() -> None:
    """Measure what the command line asks for, print it and write it down."""
    arguments = _arguments()
    rates = _rates()
    rows = [_measured(name, arguments.repeats, rates) for name in arguments.only or WORKS]
    _show(rows)
    RESULTS.mkdir(exist_ok=True)
    document = {"machine": machine(), "gflops": rates, "rows": rows}
    (RESULTS / "training.json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")


class TorchLoop:
    """Local training as usually written."""

    def __init__(self, model: Model, data: FederatedData, settings: LocalTraining) -> None:
        self._module = model.module().train()
        self._optimiser = torch.optim.SGD(
            [p for _, p in trainable(self._module)], settings.learning_rate
        )
        self._data = data
        self._settings = settings

    def train(
        self, start: NDArray[np.float32], jobs: list[TrainingJob], rows: list[NDArray[np.float32]]
    ) -> None:
        """Write the update of every job into its row."""
        begin = torch.from_numpy(start)
        for job, row in zip(jobs, rows, strict=True):
            load_vector(self._module, begin)
            x, y = self._data.train[job.client]
            for indices in batches(job.seed, len(y), self._settings):
                self._optimiser.zero_grad()
                logits = self._module(torch.tensor(x[indices]))
                functional.cross_entropy(logits, torch.tensor(y[indices])).backward()
                self._optimiser.step()
            with torch.no_grad():
                end = torch.cat([p.reshape(-1) for _, p in trainable(self._module)])
                row[:] = (begin - end).numpy()


def _measured(name: str, repeats: int, rates: dict[str, float]) -> Row:
    """Return milliseconds for each client by each contender, and their errors."""
    work = WORKS[name]
    model = model_named(work.model, work.form, work.options)
    data = made_data(work)
    jobs = [TrainingJob(client, sha256(b"job %d" % client)) for client in range(work.clients)]
    start = model.initial(np.random.default_rng(1))
    trainers: dict[str, TorchLoop | PlainTrainer | LockstepTrainer] = {
        "loop": TorchLoop(model, data, work.settings)
    }
    arguments = (model, data.train, as_stored, work.settings, "cpu")
    trainers["plain"] = PlainTrainer(*arguments)
    planned = plan(model, data, work.settings, "cpu")
    if planned.path == "lockstep":
        trainers["lockstep"] = LockstepTrainer(*arguments)
    rows = np.zeros((work.clients, model.dimension), dtype=np.float32)
    before = gemm_rate()
    times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in trainers}
    with reproducible(torch.device("cpu")):
        for _ in range(repeats + 1):
            for kind, trainer in trainers.items():
                times[kind].append(_seconds(lambda t=trainer: t.train(start, jobs, list(rows))))  # type: ignore[misc]
    row: Row = {"work": name, "d": model.dimension, "plan": planned.path}
    row["floor ms"] = 1e3 * _floor(work, model, rates)
    for kind, measured in times.items():
        each = 1e3 / work.clients
        row[f"{kind} CPU ms"] = each * median(cpu for cpu, _ in measured[1:])
        row[f"{kind} wall ms"] = each * median(wall for _, wall in measured[1:])
    row["errors"] = _errors(work, model, data, trainers, start, jobs[: work.exact])
    row["gemm GF/s"] = [before, gemm_rate()]
    return row


def _seconds(work: Callable[[], None]) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def made_data(work: TrainingWork) -> FederatedData:
    """Return samples of a workload, the same each time."""
    rng, form = np.random.default_rng(0), work.form
    train = []
    for _ in range(work.clients):
        shape = (work.samples, *form.input_shape)
        x: NDArray[Any]
        if form.vocabulary is None:
            x = rng.random(shape, dtype=np.float32)
        else:
            x = rng.integers(0, form.vocabulary, shape)
        train.append(frozen_samples(x, rng.integers(0, form.classes, work.samples)))
    return FederatedData("made", form, tuple(train), train[0])


def _errors(
    work: TrainingWork,
    model: Model,
    data: FederatedData,
    trainers: Mapping[str, TorchLoop | PlainTrainer | LockstepTrainer],
    start: NDArray[np.float32],
    jobs: list[TrainingJob],
) -> dict[str, dict[str, float]]:
    """Return the relative errors of the updates of each trainer, against float64."""
    largest = {}
    with reproducible(torch.device("cpu")):
        exact = [_exact(work, model, data, start, job) for job in jobs]
        updates = {kind: np.zeros((len(jobs), len(start)), dtype=np.float32) for kind in trainers}
        for kind, trainer in trainers.items():
            trainer.train(start, jobs, list(updates[kind]))
    for kind, formed in updates.items():
        errors = [
            float(np.linalg.norm(row - right) / np.linalg.norm(right))
            for row, right in zip(formed, exact, strict=True)
        ]
        largest[kind] = {"median": median(errors), "largest": max(errors)}
    return largest


def _exact(
    work: TrainingWork,
    model: Model,
    data: FederatedData,
    start: NDArray[np.float32],
    job: TrainingJob,
) -> NDArray[np.float64]:
    module = model.module().double().train()
    load_vector(module, torch.tensor(start, dtype=torch.float64))
    parameters = [p for _, p in trainable(module)]
    x, y = data.train[job.client]
    for indices in batches(job.seed, len(y), work.settings):
        inputs = torch.tensor(x[indices])
        inputs = inputs.double() if inputs.is_floating_point() else inputs
        loss = functional.cross_entropy(module(inputs), torch.tensor(y[indices]))
        for parameter, gradient in zip(
            parameters, torch.autograd.grad(loss, parameters), strict=True
        ):
            parameter.data.sub_(gradient, alpha=work.settings.learning_rate)
    end: NDArray[np.float64] = torch.cat([p.detach().reshape(-1) for p in parameters]).numpy()
    return start.astype(np.float64) - end


def _rates() -> dict[str, float]:
    """Return the GFLOP/s of one core, the best of some."""
    with reproducible(torch.device("cpu")), torch.inference_mode():
        a, b = torch.rand(2048, 2048), torch.rand(2048, 2048)
        x = torch.rand(10, 32, 14, 14).contiguous(memory_format=torch.channels_last)
        kernels = torch.rand(64, 32, 5, 5).contiguous(memory_format=torch.channels_last)
        product = min(_seconds(lambda: torch.mm(a, b))[0] for _ in range(5))  # type: ignore[arg-type]
        image = min(
            _seconds(lambda: functional.conv2d(x, kernels, padding=2))[0]  # type: ignore[arg-type]
            for _ in range(50)
        )
    return {"product": 2e-9 * 2048**3 / product, "convolution": 2e-9 * 1960 * 800 * 64 / image}


def _floor(work: TrainingWork, model: Model, rates: dict[str, float]) -> float:
    """Return the seconds of one client's arithmetic."""
    steps, batch = work.settings.local_steps or 0, work.settings.batch_size
    if work.model == "shakespeare_lstm":
        hidden, tokens = int(work.options["hidden"]), work.form.input_shape[0]
        gates = tokens * 4 * hidden * ((8 + hidden) + 2 * hidden)
        return 6e-9 * steps * batch * (gates + hidden * work.form.classes) / rates["product"]
    seconds, passes = 0.0, 2  # forward and weights; the first layer passes no gradient on
    for link in chain_of(model.module(), model.form):
        if isinstance(link.layer, Linear | Convolution):
            is_linear = isinstance(link.layer, Linear)
            positions = 1 if is_linear else math.prod(link.output_shape[1:])
            rate = rates["product" if is_linear else "convolution"]
            seconds += 2e-9 * passes * batch * positions * link.layer.size / rate
            passes = 3
    return steps * seconds


def _show(rows: list[Row]) -> None:
    table = Table(title="local training, CPU ms for each client on one thread")
    kinds = ("loop", "plain", "lockstep")
    for column in ("", "floor", *kinds, "loop : lockstep", "lockstep : floor", "GEMM GF/s"):
        table.add_column(column, justify="right")
    errors = Table(title="relative error of an update against float64, median (largest)")
    for column in ("", *kinds):
        errors.add_column(column, justify="right")
    for row in rows:
        times = [row.get(f"{kind} CPU ms") for kind in kinds]
        ratios = ("-", "-")
        if row["plan"] == "lockstep":
            best = row["lockstep CPU ms"]
            ratios = (f"{row['loop CPU ms'] / best:.2f}", f"{best / row['floor ms']:.2f}")
        shown = ["-" if value is None else f"{value:.3g}" for value in (row["floor ms"], *times)]
        calm = " to ".join(f"{rate:.0f}" for rate in row["gemm GF/s"])
        table.add_row(row["work"], *shown, *ratios, calm)
        shown_errors = [row["errors"].get(kind) for kind in kinds]
        errors.add_row(
            row["work"],
            *(
                "-" if e is None else f"{e['median']:.1e} ({e['largest']:.1e})"
                for e in shown_errors
            ),
        )
    Console().print(table)
    Console().print(errors)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=tuple(WORKS), help="these works alone")
    parser.add_argument("--repeats", type=int, default=5, help="measured, after one that is not")
    return parser.parse_args()


if __name__ == "__main__":
    main()
