"""Cost of robust aggregators beside ByzFL's, on the updates of one round.

`python -m benchmarks.aggregators` lets ours and ByzFL's (on NumPy arrays and on torch tensors) take
turns on the same 65 updates of a million numbers, on one thread and on two (ours has one in both),
each turn a process of its own. ByzFL is in the environment that `make bench-peers` makes. NNM,
which takes ByzFL a quarter of a minute, has one turn. The aggregates are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.contention import gemm_rate, machine
from benchmarks.peers.aggregator_seconds import RULES, SLOW, WAYS
from benchmarks.peers.contenders import Contender

RESULTS = Path(__file__).parent / "results"
Costs = dict[str, dict[str, list[list[float]]]]
"""CPU and wall seconds of each turn, by rule and way."""


def main() -> None:
    """Measure, compare, print and write down."""
    arguments = _arguments()
    contenders = {
        way: Contender(way, "aggregator_seconds", None if way == "ours" else "byzfl")
        for way in WAYS
    }
    if not all(contender.is_there for contender in contenders.values()):
        raise SystemExit("ByzFL's environment is not there: make bench-peers")
    document: dict[str, Any] = {
        "machine": machine(),
        "updates": arguments.updates,
        "dimension": arguments.dimension,
        "turns": arguments.turns,
        "gemm before, GF/s": gemm_rate(),
    }
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(3)
        shape = arguments.updates, arguments.dimension
        np.save(Path(folder) / "updates.npy", rng.standard_normal(shape, dtype=np.float32))
        for threads in arguments.threads:
            costs = _turns(contenders, Path(folder), threads, arguments)
            document[f"threads {threads}"] = rows = _rows(costs)
            _show(f"aggregators, {threads} threads for ByzFL", rows)
        document["largest difference"] = _differences(Path(folder))
    document["gemm after, GF/s"] = gemm_rate()
    Console().print(document["largest difference"])
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "aggregators.json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")


def _turns(
    contenders: dict[str, Contender], folder: Path, threads: int, arguments: argparse.Namespace
) -> Costs:
    rules = [rule for rule in RULES if rule not in arguments.without]
    costs: Costs = {rule: {way: [] for way in WAYS} for rule in rules}
    for turn in range(arguments.turns):
        for way, contender in contenders.items():
            command = [str(contender.python), "-m", f"benchmarks.peers.{contender.module}"]
            options = [str(folder), way, "--threads", str(threads)]
            without = ["--without", *arguments.without, *(SLOW if turn else ())]
            process = subprocess.run(
                [*command, *options, *without],
                env={**os.environ, **dict.fromkeys(_THREADS, str(threads))},
                stdout=subprocess.PIPE,
                check=True,
            )
            for rule, seconds in json.loads(process.stdout.splitlines()[-1]).items():
                costs[rule][way].append(seconds)
            if not turn:
                (folder / f"{way}.npz").rename(folder / f"{way}-first.npz")
    return costs


_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def _rows(costs: Costs) -> list[dict[str, Any]]:
    """Return medians, and how many times ours each of ByzFL's ways takes."""
    rows = []
    for rule, ways in costs.items():
        row: dict[str, Any] = {"rule": rule}
        for place, unit in enumerate(("CPU s", "wall s")):
            medians = {way: median(turn[place] for turn in turns) for way, turns in ways.items()}
            for way, seconds in medians.items():
                row[f"{way}, {unit}"] = round(seconds, 3)
            for way in WAYS[1:]:
                ratios = [
                    other[place] / own[place]
                    for own, other in zip(ways["ours"], ways[way], strict=True)
                ]
                row[f"{way} / ours, {unit[:-2]}"] = round(median(ratios), 1)
        rows.append(row)
    return rows


def _differences(folder: Path) -> dict[str, float]:
    """Return the largest difference of ours from ByzFL's aggregates, relative to their length."""
    ours, others = (np.load(folder / f"{way}-first.npz") for way in WAYS[:2])
    return {
        rule: float(f"{np.linalg.norm(ours[rule] - others[rule]) / np.linalg.norm(ours[rule]):.1e}")
        for rule in ours.files
    }


def _show(title: str, rows: list[dict[str, Any]]) -> None:
    table = Table(*rows[0], title=title)
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console(width=200).print(table)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--updates", type=int, default=65, help="of a round")
    parser.add_argument("--dimension", type=int, default=1_000_000, help="numbers of an update")
    parser.add_argument("--turns", type=int, default=5, help="of each way")
    parser.add_argument("--threads", type=int, nargs="+", default=(1, 2), help="of ByzFL")
    parser.add_argument(
        "--without", nargs="+", default=[], choices=RULES, help="rules to leave out"
    )
    arguments = parser.parse_args()
    if arguments.updates < 29 or min(arguments.dimension, arguments.turns, *arguments.threads) < 1:
        parser.error("--updates must be at least 29, --dimension, --turns and --threads at least 1")
    return arguments


if __name__ == "__main__":
    main()
