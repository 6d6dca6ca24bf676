"""What each set of rules survives: attacks on updates by 30 % of the clients, softmax on digits.

`python -m benchmarks.robustness` runs FedAvg with as many trainers as CMFL, strategy I, strategy
III by the committee's spread, and the preset `robust` under each attack of `clients.attacks`,
every CMFL run over a ledger of its own, and prints the mean test accuracy of the last rounds with
its standard error over the seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from clients.comparison import Comparison, Trial
from clients.configuration.loading import load
from clients.methods import METHODS, Averaging, Committee
from clients.processes import in_processes
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.storage.blobs import MemoryBlobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from clients.methods import Method

ATTACKS = {
    "none": None,
    "back-gradient": ("back-gradient", None),
    "same-value": ("same-value", None),
    "ipm": ("ipm", None),
    "min-max": ("min-max", None),
    "ten-fold": ("back-gradient", 10.0),
}
COMPARED: dict[str, Method] = {
    "FedAvg": next(m for m in METHODS if isinstance(m, Averaging) and "trainers" in m.name),
    "I": Committee("I", "digits"),
    "III, spread": Committee("III-spread", "digits", ("protocol.strategy=3",)),
    "III, robust": Committee("III", "robust"),
}
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Cell:
    """One run: an attack, a method, a seed."""

    attack: str
    method: str
    seed: int
    rounds: int


def main() -> None:
    """Run everything, print the table and write it down."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=40)
    arguments = parser.parse_args()
    cells = [
        Cell(attack, method, seed, arguments.rounds)
        for attack in ATTACKS
        for method in COMPARED
        for seed in range(arguments.seeds)
    ]
    console = Console()
    with Progress(console=console) as bar:
        task = bar.add_task("rounds", total=len(cells) * arguments.rounds)
        accuracies = in_processes(play, cells, os.cpu_count() or 1, lambda _name: bar.advance(task))
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for cell, accuracy in zip(cells, accuracies, strict=True):
        found[cell.attack, cell.method].append(accuracy)
    table = Table("attack", *COMPARED, title=f"test accuracy, {arguments.seeds} seeds")
    for attack in ATTACKS:
        table.add_row(attack, *(_shown(found[attack, method]) for method in COMPARED))
    console.print(table)
    RESULTS.mkdir(exist_ok=True)
    rows = [asdict(cell) | {"accuracy": a} for cell, a in zip(cells, accuracies, strict=True)]
    (RESULTS / "robustness.json").write_text(json.dumps(rows, indent=1) + "\n")


def play(cell: Cell, report: Callable[[str], None]) -> float:
    """Return the accuracy of one run.

    Args:
        cell: what is run.
        report: called with the run's name after each round.
    """
    settings = [f"protocol.rounds={cell.rounds}"]
    attack = ATTACKS[cell.attack]
    if attack is not None:
        name, factor = attack
        settings += [f"malice.attack={name}", "malice.malicious_rate=0.3"]
        settings += [f"malice.factor={factor}"] if factor is not None else []
    configuration = load("digits", settings=tuple(settings))
    trial = Trial(COMPARED[cell.method], cell.seed, attacked=attack is not None)
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedChain.create(Path(folder) / "chain.sqlite", synchronous="NORMAL") as chain,
    ):
        comparison = Comparison(Path(folder), chain, MemoryBlobs(), configuration)
        return comparison.one(trial, report).accuracy


def _shown(values: list[float]) -> str:
    error = f" ± {stdev(values) / len(values) ** 0.5:.3f}" if len(values) > 1 else ""
    return f"{fmean(values):.3f}{error}"


if __name__ == "__main__":
    main()
