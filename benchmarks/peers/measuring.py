"""Measurements that every contender takes of itself, and their hand-over.

A contender is a separate process, which prints what it likes and writes `result.json` and
`aggregate.npy` into the folder that it is given, and `sketches.npy` where it has every update. Its
first round is a warm-up: it is not timed, and shows that all contenders do the same work.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_TICKS = os.sysconf("SC_CLK_TCK")
_SKETCH = 64


def contender_arguments() -> argparse.Namespace:
    """Return a contender's arguments: the folders `work` and `out`, and `rounds` to time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("work", type=Path, help="the folder of the workload")
    parser.add_argument("out", type=Path, help="where the result goes")
    parser.add_argument("--rounds", type=int, default=3, help="rounds after the warm-up")
    parser.add_argument("--members", type=int, default=0, help="of the committee; 0 for none")
    parser.add_argument("--variant", default="", help="which of a contender's ways")
    return parser.parse_args()


def tree_cpu_seconds(root: int) -> float:
    """Return the CPU seconds of a process and all below it, ended children included.

    Args:
        root: id of the process.
    """
    parents, spent = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text("utf-8", "replace")
            except OSError:  # it ended meanwhile; its parent has its time
                continue
            fields = stat.rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
            spent[int(folder.name)] = sum(map(int, fields[11:15])) / _TICKS
    return sum(seconds for pid, seconds in spent.items() if _is_below(pid, root, parents))


def _is_below(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid not in {0, root}:
        pid = parents.get(pid, 0)
    return pid == root


@dataclass(slots=True)
class RoundClock:
    """Times rounds, the first of which is the warm-up.

    Attributes:
        root: the process whose tree does the work.
        rounds: wall and CPU seconds of each round after the warm-up.
    """

    root: int = field(default_factory=os.getpid)
    rounds: list[dict[str, float]] = field(default_factory=list)
    _wall: float = 0.0
    _cpu: float = 0.0

    def start(self) -> None:
        """Begin a round."""
        self._cpu = tree_cpu_seconds(self.root)
        self._wall = time.perf_counter()

    def stop(self, **parts: float) -> None:
        """End a round."""
        wall = time.perf_counter() - self._wall
        cpu = tree_cpu_seconds(self.root) - self._cpu
        self.rounds.append({"wall": wall, "cpu": cpu, **parts})


def sketch(update: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return a short sketch of an update: its sums, with fixed signs, over residues.

    Sketches are linear, and their squared length is that of the update but for chance: how far
    two updates are apart can be computed from their sketches.
    """
    signs = np.random.default_rng(0).integers(2, size=len(update), dtype=np.int8) * 2 - 1
    signed = np.zeros(-(-len(update) // _SKETCH) * _SKETCH, dtype=np.float32)
    np.multiply(update, signs, out=signed[: len(update)])
    sums: NDArray[np.float64] = signed.reshape(-1, _SKETCH).sum(0, dtype=np.float64)
    return sums


def hand_in(
    out: Path,
    clock: RoundClock,
    aggregate: NDArray[np.float32],
    packages: Sequence[str],
    sketches: Sequence[NDArray[np.float64]] = (),
    **facts: Any,
) -> None:
    """Write a contender's result.

    Args:
        out: the folder for it.
        clock: with the warm-up and at least one timed round.
        aggregate: mean update of the first round, shape (d,).
        packages: distributions whose versions count.
        sketches: of each client's first update, in their order; none where they are not known.
        facts: what else is worth knowing.

    Raises:
        ValueError: nothing was timed.
    """
    if len(clock.rounds) < 2:
        raise ValueError("no round was timed after the warm-up")
    np.save(out / "aggregate.npy", aggregate)
    if len(sketches):
        np.save(out / "sketches.npy", np.stack(sketches))
    result = {
        "warm_up": clock.rounds[0],
        "rounds": clock.rounds[1:],
        "aggregate_norm": float(np.linalg.norm(aggregate.astype(np.float64))),
        "versions": {"python": platform.python_version(), **{p: version(p) for p in packages}},
        **facts,
    }
    (out / "result.json").write_text(json.dumps(result, indent=1) + "\n", "utf-8")
