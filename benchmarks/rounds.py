"""Cost of a round: this project, a plain loop and two other frameworks on the same work.

`python -m benchmarks.rounds` lets the contenders of each of `TASKS` take turns (A B C A B C), each
time as a clean process with two workers on the same fixed data. It prints medians of wall and CPU
seconds of a round after the warm-up. Every first aggregate must be near the plain loop's: the work
is the same. A rate of matrix products before and after each turn shows whether other processes used
the machine. CMFL plays whole rounds of 40 members and 60 trainers.

`make bench-peers` makes the environments of the peers; without its environment a peer is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.harness import MEASURED, RESULTS, ROOT, Row, gemm_rate, keep, machine, show
from benchmarks.workloads import WORKS, make_workload, write_workload

ENVIRONMENTS = ROOT / ".bench"  # where `make bench-peers` puts the peers' environments, by name
SAME_WORK = 0.02
"""Largest relative difference of a first aggregate from the plain loop's, ‖a − b‖ / ‖b‖.

Other kernels round otherwise, which switches a ReLU or a pool of some clients: 0.012 was measured.
Other samples, another order or another step size differ by far more."""
QUICK_CLIENTS, QUICK_MEMBERS = 10, 4


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to do the work: a module of `benchmarks.peers`, in a peer's environment or ours."""

    name: str
    module: str
    peer: str | None = None
    launcher: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def is_there(self) -> bool:
        return self.peer is None or (ENVIRONMENTS / self.peer / ".installed").exists()

    def command(self, work: Path, out: Path, task: PeerTask) -> list[str]:
        own = Path(sys.executable) if self.peer is None else ENVIRONMENTS / self.peer / "bin/python"
        module = ("-m", f"benchmarks.peers.{self.module}", str(work), str(out))
        sizes = ("--rounds", str(task.rounds), "--members", str(task.members))
        return [str(own), *self.launcher, *module, *sizes, *self.options]


OURS = Contender("ours", "our_rounds")
PLAIN = Contender("plain loop", "plain_rounds")
_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
_QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
ALL = (
    OURS,
    PLAIN,
    Contender("pfl, 2 processes", "pfl_rounds", "pfl", _TORCHRUN),
    Contender("Flower, 2 actors", "flower_rounds", "flower", environment=_QUIET),
)
COMMITTEES = (
    Contender("ours, memory ledger", "our_rounds", options=("--variant", "memory")),
    Contender("ours, chain", "our_rounds", options=("--variant", "chain")),
    Contender("plain loop, naive scores, no ledger", "plain_rounds"),
)


@dataclass(frozen=True, slots=True)
class PeerTask:
    """One table's comparison; ours is the first contender, and 0 members mean no scoring."""

    name: str
    work: str
    contenders: tuple[Contender, ...]
    rounds: int
    members: int = 0


TASKS = {
    task.name: task
    for task in (
        PeerTask("W1L", "W1L", ALL, 2),
        PeerTask("W1S", "W1S", ALL, 3),
        PeerTask("W2", "W2", ALL, 5),
        PeerTask("W3", "W3", ALL, 20),
        PeerTask("CMFL", "W1L", COMMITTEES, 2, members=40),
    )
}


@dataclass(slots=True)
class Turns:
    """A contender's turns, and the difference of its first aggregate from the plain loop's."""

    contender: Contender
    rounds: list[dict[str, float]] = field(default_factory=list)
    gemm: list[float] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    difference: float | None = None

    def middle(self, key: str) -> float | None:
        """Return the median of seconds over all timed rounds; None where they were not timed."""
        return median(each[key] for each in self.rounds) if key in self.rounds[0] else None


def main() -> None:
    """Measure what the command line asks for, print it and write it down."""
    arguments, faults = _arguments(), []
    path = RESULTS / "rounds-quick.json" if arguments.quick else MEASURED / "rounds.json"
    with tempfile.TemporaryDirectory(prefix="rounds") as folder:
        for name in arguments.only or TASKS:
            task, cycles = TASKS[name], arguments.cycles
            if arguments.quick:
                task = replace(task, rounds=1, members=QUICK_MEMBERS if task.members else 0)
                cycles = 1
            turns = take_turns(task, cycles, Path(folder), quick=arguments.quick)
            faults += compare(task, turns, Path(folder))
            show([_line(each, turns[0]) for each in turns], f"{name}: a round")
            document = json.loads(path.read_text("utf-8")) if path.exists() else {}
            contenders = [
                {
                    "contender": each.contender.name,
                    **{f"{key}_median": each.middle(key) for key in ("wall", "cpu", "training")},
                    "difference": each.difference,
                    "gemm": each.gemm,
                    "turns": each.results,
                }
                for each in turns
            ]
            document[name] = {"machine": machine(), "contenders": contenders}
            keep(path, document)
    print(", ".join(f"{key} {value}" for key, value in machine().items()))
    if faults:
        sys.exit("\n".join(faults))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=TASKS, help="these tasks, and no others")
    parser.add_argument("--cycles", type=int, default=3, help="turns of each contender")
    parser.add_argument(
        "--quick", action="store_true", help="10 clients, one turn of one round: does it all work?"
    )
    arguments = parser.parse_args()
    if arguments.cycles < 1:
        parser.error(f"--cycles {arguments.cycles}: must be at least 1")
    return arguments


def take_turns(task: PeerTask, cycles: int, folder: Path, *, quick: bool) -> list[Turns]:
    """Let every contender that is there take its turns; `quick` has a few clients only."""
    work = folder / f"{task.name}-work"
    work.mkdir()
    write_workload(make_workload(WORKS[task.work], QUICK_CLIENTS if quick else None), work)
    turns = [Turns(contender) for contender in task.contenders if contender.is_there]
    for contender in task.contenders:
        if not contender.is_there:
            print(f"{contender.name} is left out: `make bench-peers` makes what it needs")
    for cycle in range(cycles):
        for each in turns:
            print(f"{task.name}, turn {cycle + 1} of {cycles}: {each.contender.name}")
            out = _place(folder, task, each.contender)
            out.mkdir(exist_ok=True)
            before = gemm_rate()
            result = _turn(task, each.contender, work, out)
            each.gemm += [before, gemm_rate()]
            each.rounds += result["rounds"]
            each.results.append(result)
    return turns


def _turn(task: PeerTask, contender: Contender, work: Path, out: Path) -> dict[str, Any]:
    """Run a contender once; return what it wrote."""
    # More threads than processes have cores make all of them slower.
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    log = out / "log.txt"
    with log.open("w", encoding="utf-8") as file:
        try:
            subprocess.run(
                contender.command(work, out, task),
                env={**os.environ, **threads, **contender.environment},
                cwd=ROOT,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=1800,
                check=True,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            last = "\n".join(log.read_text("utf-8", "replace").splitlines()[-30:])
            sys.exit(f"{last}\n{task.name}, {contender.name}: {error}")
    result: dict[str, Any] = json.loads((out / "result.json").read_text("utf-8"))
    return result


def compare(task: PeerTask, turns: list[Turns], folder: Path) -> list[str]:
    """Compare first aggregates, or heads; return a sentence for each contender of other work."""
    places = {each.contender.name: _place(folder, task, each.contender) for each in turns}
    if PLAIN.name not in places:
        heads = {tuple(run["heads"]) for each in turns for run in each.results if "heads" in run}
        return [f"{task.name}: equal runs have come to other heads"] if len(heads) > 1 else []
    expected = np.load(places[PLAIN.name] / "aggregate.npy").astype(np.float64)
    faults = []
    for each in turns:
        found = np.load(places[each.contender.name] / "aggregate.npy")
        each.difference = float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
        # A NaN is no agreement.
        if not each.difference <= SAME_WORK:
            faults.append(
                f"{task.name}, {each.contender.name}: its first aggregate differs from the "
                f"{PLAIN.name}'s by {each.difference:.1e}"
            )
    return faults


def _place(folder: Path, task: PeerTask, contender: Contender) -> Path:
    return folder / f"{task.name}-{task.contenders.index(contender)}"


def _line(turns: Turns, ours: Turns) -> Row:
    """Return a contender's line in the table, beside ours."""
    walls = [each["wall"] for each in turns.rounds]
    cpu, wall = turns.middle("cpu") or 0.0, turns.middle("wall") or 0.0
    return {
        "contender": turns.contender.name,
        "wall s": f"{wall:.3f}",
        "least": f"{min(walls):.3f}",
        "most": f"{max(walls):.3f}",
        "CPU s": f"{cpu:.3f}",
        "× wall": f"{wall / (ours.middle('wall') or 1):.2f}",
        "× CPU": f"{cpu / (ours.middle('cpu') or 1):.2f}",
        "differs": "" if turns.difference is None else f"{turns.difference:.0e}",
        "GF/s": f"{min(turns.gemm):.0f}-{max(turns.gemm):.0f}",
    }


if __name__ == "__main__":
    main()
