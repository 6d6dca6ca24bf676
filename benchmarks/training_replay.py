"""Cost of repeating a round's updates, over that of their training.

`python -m benchmarks.training_replay` trains the clients of a round on made samples by an engine in
this process, and repeats the round from chain data and blobs in a folder, as `cmfl verify training`
does: model read and hashed, every client trained with the loss of each step, every update compared
with its commitment. Both are done in turn, each round from a model and seeds of its own; figures
are medians of wall and CPU milliseconds of a round, and of the ratio of the two in each turn.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from itertools import islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.contention import machine
from benchmarks.training import RESULTS, WORKS, made_data
from clients.configuration.loading import load
from clients.models.registry import model_named
from clients.replay.recorded_updates import RecordedRound, RecordedUpdate
from clients.replay.replay_inputs import ReplayInputs
from clients.replay.training_replay import ReplayTask, replay
from clients.training.engine_factory import open_engine
from clients.training.environment import environment_here
from clients.training.lockstep.execution_plan import plan
from clients.training.port import TrainingJob
from ledger.protocol.encoding import commitment_of, sha256, vector_bytes
from ledger.protocol.sampling import training_seed
from ledger.protocol.training_replay import ReplayVerdict
from ledger.protocol.types import ClientId
from ledger.storage.blobs import FolderBlobs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clients.replay.replayed_update import ReplayedUpdate
    from clients.training.port import Engine, TrainingPath
    from ledger.storage.blobs import BlobStore

KINDS = ("W1S", "W2", "W3", "digits", "digits cnn")
_WARM_UPS = 2
"""Turns before the first that counts: kernels are chosen and memory is touched."""

Row = dict[str, Any]


def main() -> None:
    """Measure what the command line asks for, print it and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    arguments = parser.parse_args()
    rows = [row for name in arguments.only for row in measured(name, arguments.turns)]
    table = Table("work", "path", "clients", "d", "train ms", "repeat ms", "ratio", "CPU ratio")
    for row in rows:
        table.add_row(
            *(str(row[name]) for name in ("work", "path", "clients", "d")),
            *(f"{row[name]:.1f}" for name in ("train ms", "repeat ms")),
            *(f"{row[name]:.3f}" for name in ("ratio", "CPU ratio")),
        )
    Console().print(table)
    RESULTS.mkdir(exist_ok=True)
    document = {"machine": machine(), "rows": rows}
    (RESULTS / "training_replay.json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")


def measured(name: str, turns: int) -> list[Row]:
    """Return the cost of a workload on each path that it can take."""
    work = WORKS[name]
    model = model_named(work.model, work.form, work.options)
    planned = plan(model, made_data(work), work.settings, "cpu").path
    paths: list[TrainingPath] = ["plain"] if planned == "plain" else ["plain", "lockstep"]
    return [_on_path(name, path, turns) for path in paths]


def _on_path(name: str, path: TrainingPath, turns: int) -> Row:
    work = WORKS[name]
    data = made_data(work)
    model = model_named(work.model, work.form, work.options)
    settings = work.settings
    configuration = load(
        "smoke",
        settings=(
            f"training.path={path}",
            f"training.learning_rate={settings.learning_rate}",
            f"training.batch_size={settings.batch_size}",
            f"training.local_steps={settings.local_steps}",
        ),
    )
    times: list[tuple[float, float, float, float]] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        open_engine(
            model, data, settings,
            device="cpu", workers=1, path=path, sets={}, rows=work.clients,
        ) as engine,
    ):  # fmt: skip
        blobs = FolderBlobs(Path(folder))
        environment = environment_here(path, "cpu")
        inputs = ReplayInputs(model, data, {}, {}, "made samples")
        task = ReplayTask(configuration, inputs, blobs, environment, lambda *_: environment)
        # One call for all rounds, as a command makes it: the first opens the engine.
        rounds: list[RecordedRound] = []
        results: Iterator[ReplayedUpdate] = iter(())
        for number in range(1, turns + _WARM_UPS + 1):
            start = model.initial(np.random.default_rng(number))
            round_, trained = _trained(engine, blobs, start, number, work.clients)
            rounds.append(round_)
            if number == 1:
                results = replay(task, rounds)
            began, cpu = time.perf_counter(), time.process_time()
            verdicts = {update.verdict for update in islice(results, work.clients)}
            ended, cpu = time.perf_counter() - began, time.process_time() - cpu
            assert verdicts == {ReplayVerdict.SAME}, "the updates are this machine's own"
            times.append((trained[0], ended, trained[1], cpu))
    counted = times[_WARM_UPS:]
    return {
        "work": name,
        "path": path,
        "clients": work.clients,
        "d": model.dimension,
        "train ms": 1e3 * median(each[0] for each in counted),
        "repeat ms": 1e3 * median(each[1] for each in counted),
        "ratio": median(each[1] / each[0] for each in counted),
        "CPU ratio": median(each[3] / each[2] for each in counted),
    }


def _trained(
    engine: Engine, blobs: BlobStore, start: Any, number: int, clients: int
) -> tuple[RecordedRound, tuple[float, float]]:
    """Train a round; return it as the chain has it, and the wall and CPU seconds of training."""
    seed = sha256(b"round %d" % number)
    model = blobs.put(vector_bytes(start))
    began, cpu = time.perf_counter(), time.process_time()
    jobs = [TrainingJob(c, training_seed(seed, ClientId(c))) for c in range(clients)]
    updates = engine.train(start, jobs)
    seconds = time.perf_counter() - began, time.process_time() - cpu
    recorded = tuple(
        RecordedUpdate(
            ClientId(update.client),
            commitment_of(ClientId(update.client), update.payload.digest),
            None,
        )
        for update in updates
    )
    return RecordedRound(number, seed, model, recorded, ()), seconds


if __name__ == "__main__":
    main()
