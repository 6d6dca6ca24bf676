"""Payload forms compared: accuracy under attacks, bytes a round, and CPU time of the codec.

`python -m benchmarks.payloads --models softmax mlp --attacks none adaptive --seeds 300 301 302`
plays each cell with each form on the memory ledger, and prints the mean test accuracy of the last
five rounds, the difference of the forms with its standard error over the seeds, and the bytes that
a trainer sends, a member reads and a store holds of one round's updates. The forms' run documents
differ, and so do their seeds of chance: two runs of one seed share data and first model, not
samples of clients. `--codec 6603710` prints the CPU time of an update of that length instead.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.late_accuracy import late_accuracy, memory_run
from clients.configuration.loading import load
from clients.experiments.costs import CommitteeTraffic
from clients.experiments.statistics import mean_and_error, paired
from ledger.io.named_files import write_named
from ledger.io.processes import task_pool
from ledger.protocol.encoding import sha256
from ledger.protocol.payload_forms import PAYLOAD_FORMS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from clients.experiments.costs import RoundTraffic
    from clients.experiments.statistics import Estimate
    from clients.runs.metrics import RoundMetrics

T = TypeVar("T")

RESULTS = Path(__file__).parent / "results"
WIDTH = 130
"""Characters of the table, whatever the terminal has."""

_BYTES = ("trainer_bytes", "member_bytes", "stored_bytes")
_OWN = Path(__file__).parent / "payload_models.py"
MODELS = {
    "softmax": ("robust", ()),
    "mlp": ("robust", (f"model.name={_OWN}:Perceptron",)),
    "cnn": ("robust", ("model.name=cnn", "training.learning_rate=0.5")),
    "lstm": (
        "robust",
        (
            f"model.name={_OWN}:RowReader",
            "training.learning_rate=0.5",
            "training.local_steps=20",
            "protocol.rounds=25",
        ),
    ),
    "leaf-cnn": (
        "paper-femnist",
        ("model.name=leaf_cnn", "protocol.clients=10", "protocol.active_rate=1.0"),
    ),
}
"""Preset and settings of each model. All but the last are on scikit-learn's digits; that one has
6,603,710 numbers, and takes --set data.path=FILE."""


@dataclass(frozen=True, slots=True)
class PayloadCell:
    """One run: model, attack, form of the payloads, seed, and settings over all of them."""

    model: str
    attack: str
    form: str
    seed: int
    rate: float
    settings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PayloadResult:
    """Result of a run: accuracy, and means of a round's bytes of updates and announcements."""

    accuracy: float
    trainer_bytes: float
    member_bytes: float
    stored_bytes: float


def main() -> None:
    """Print what is asked for, and write it down."""
    arguments = _arguments()
    if arguments.codec:
        print_codec(arguments.codec, arguments.repeats)
        return
    console = Console(width=WIDTH)
    if arguments.rows:
        rows = [row for path in arguments.rows for row in json.loads(path.read_text("utf-8"))]
        console.print(table_of(rows))
        return
    settings = tuple(arguments.set)
    cells = [
        PayloadCell(model, attack, form, seed, arguments.rate, settings)
        for model in arguments.models
        for attack in arguments.attacks
        for seed in arguments.seeds
        for form in PAYLOAD_FORMS
    ]
    with Progress(console=console) as bar, task_pool(arguments.jobs) as pool:
        task = bar.add_task("runs", total=len(cells))
        results = pool.run(play, cells, lambda _name: bar.advance(task))
    rows = [asdict(cell) | asdict(result) for cell, result in zip(cells, results, strict=True)]
    console.print(table_of(rows))
    RESULTS.mkdir(exist_ok=True)
    write_named(arguments.out, f"{json.dumps(rows, indent=1)}\n".encode())


def play(cell: PayloadCell, report: Callable[[str], None]) -> PayloadResult:
    """Return the result of one run.

    Args:
        cell: what is run.
        report: called with the model's name when it has ended.
    """
    preset, of_model = MODELS[cell.model]
    settings = [f"seed={cell.seed}", f"protocol.payload={cell.form}", *of_model, *cell.settings]
    if cell.attack != "none":
        settings += [f"malice.attack={cell.attack}", f"malice.malicious_rate={cell.rate}"]
    configuration = load(preset, settings=tuple(settings))
    with memory_run(configuration) as run:
        traffic = CommitteeTraffic(run.population.model.dimension)
        run.simulation.on_step = traffic.take
        rows = run.go_on(traffic.close)
    report(cell.model)
    return PayloadResult(late_accuracy(rows), *_bytes(rows, traffic.rounds))


def print_codec(dimension: int, repeats: int) -> None:
    """Print the CPU time that one update takes in each form, forms taking turns."""
    update = np.random.default_rng(0).standard_normal(dimension, dtype=np.float32)
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(repeats):
        for name, form in PAYLOAD_FORMS.items():
            data = _timed(times, (name, "encode"), partial(form.encode, update))
            _timed(times, (name, "hash"), partial(sha256, data))
            _timed(times, (name, "decode"), partial(form.decode, data, dimension))
    table = Table("form", "bytes", "encode, ms", "hash, ms", "decode, ms")
    for form in PAYLOAD_FORMS.values():
        parts = (median(times[form.name, part]) for part in ("encode", "hash", "decode"))
        table.add_row(
            form.name, f"{form.size(dimension):,}", *(f"{1000 * part:.1f}" for part in parts)
        )
    Console().print(table)


def _timed(
    times: dict[tuple[str, str], list[float]], key: tuple[str, str], act: Callable[[], T]
) -> T:
    start = time.process_time()
    result = act()
    times.setdefault(key, []).append(time.process_time() - start)
    return result


def _bytes(
    rows: Sequence[RoundMetrics], rounds: Sequence[RoundTraffic]
) -> tuple[float, float, float]:
    """Return the mean bytes of a trainer's upload, a member's download and a round's uploads."""
    sent, read, stored = [], [], []
    for row, traffic in zip(rows, rounds, strict=True):
        uploads = [traffic.sent["updates"][client] for client in row.trained]
        sent += uploads
        read += [traffic.received["reading"][client] for client in row.served]
        stored.append(traffic.sent["updates"].total())
    return fmean(sent), fmean(read), fmean(stored)


def table_of(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a line for each model and attack: accuracy of each form, difference, bytes, ratios."""
    plain, rounded = PAYLOAD_FORMS
    columns = (plain, rounded, "difference", "trainer", "member", "store", "ratios")
    seeds = sorted({row["seed"] for row in rows})
    title = f"accuracy, and bytes a round as {rounded}; seeds {seeds}"
    table = Table("model", "attack", *columns, title=title)
    for model, attack in dict.fromkeys((row["model"], row["attack"]) for row in rows):
        cells = [row for row in rows if (row["model"], row["attack"]) == (model, attack)]
        of = {form: [row for row in cells if row["form"] == form] for form in PAYLOAD_FORMS}
        accuracy = {form: [row["accuracy"] for row in of[form]] for form in of}
        sizes = {form: [fmean(row[key] for row in of[form]) for key in _BYTES] for form in of}
        ratios = [a / b for a, b in zip(sizes[plain], sizes[rounded], strict=True)]
        table.add_row(
            model,
            attack,
            *(_shown(mean_and_error(accuracy[form])) for form in of),
            _shown(paired(accuracy[rounded], accuracy[plain]), sign="+"),
            *(f"{size:,.0f}" for size in sizes[rounded]),
            " ".join(f"{ratio:.2f}" for ratio in ratios),
        )
    return table


def _shown(estimate: Estimate, sign: str = "") -> str:
    error = "" if estimate.error is None else f" ± {estimate.error:.3f}"
    return f"{estimate.mean:{sign}.3f}{error}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["softmax"])
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--attacks", nargs="+", default=["none", "adaptive", "min-max"])
    parser.add_argument("--rate", type=float, default=0.3, help="share of malicious clients")
    parser.add_argument("--seeds", type=int, nargs="+", default=[300, 301, 302])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--codec", type=int, metavar="D", help="time an update of D numbers")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--rows", type=Path, nargs="+", help="print the table of earlier --out")
    parser.add_argument("--out", type=Path, default=RESULTS / "payloads.json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
