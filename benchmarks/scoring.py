"""Cost of a round's distances, beside other ways and beside reading the same updates.

`python -m benchmarks.scoring` compares the 108 updates of a round with the updates of its 43
members, in each of `WAYS`. Reading the updates' files with a sha256 of each is the part that no
audit can omit. Ways take turns. Slow ways compare with a few of the members, and their seconds are
multiplied. A product of two matrices before and after shows whether the machine was quiet.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.harness import MEASURED, Row, Seconds, gemm_rate, keep, machine, show, timed
from ledger import distances
from ledger.distances import fast_distances
from ledger.protocol.rules import distance
from ledger.protocol.rules.distance import DIRECTION, SQUARED, DistanceRule, Distances
from ledger.protocol.types import ClientId

MEMBERS, TRAINERS, REPEATS = 43, 65, 3
DIMENSIONS = (100_000, 1_000_000, 6_600_000)


class ScoredRound(NamedTuple):
    """The updates of a round, in memory and in files, and the members that score."""

    updates: dict[ClientId, NDArray[np.float32]]
    members: Sequence[ClientId]
    files: Sequence[Path]


def main() -> None:
    """Measure all ways, print their seconds and write them down."""
    torch.set_num_threads(1)
    document: dict[str, Any] = {
        "machine": machine(),
        "usable cores": distances.usable_cores(),
        "numpy": np.__version__,
        "plain because": distances.fallback_reason(),
        "gemm before, GF/s": gemm_rate(),
        "seconds": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        for dimension in DIMENSIONS:
            document["seconds"] += seconds(_round_of(dimension, Path(folder)))
    document["gemm after, GF/s"] = gemm_rate()
    show(document["seconds"])
    keep(MEASURED / "scoring.json", document)


def seconds(round_: ScoredRound) -> list[Row]:
    """Return the median time of each way in one round, and its ratio to the first way's."""
    # How many of the members are timed, if not all.
    few = dict.fromkeys(WAYS, MEMBERS) | {"naive float32 loop": 8, "pair by pair": 1}
    costs: dict[str, list[Seconds]] = {name: [] for name in WAYS}
    for _ in range(REPEATS):
        for name, way in WAYS.items():
            part = round_._replace(members=round_.members[: few[name]])
            costs[name].append(timed(lambda way=way, part=part: way(part))[1])  # type: ignore[misc]
    for file in round_.files:
        file.unlink()
    rows: list[Row] = []
    for name, times in costs.items():
        wall, cpu = (median(part) * MEMBERS / few[name] for part in zip(*times, strict=True))
        row: Row = {"d": len(round_.updates[ClientId(0)]), "way": name}
        row |= {"members timed": few[name], "cpu s": round(cpu, 4), "wall s": round(wall, 4)}
        rows.append({**row, "ratio": round(cpu / (rows[0]["cpu s"] if rows else cpu), 2)})
    return rows


def _by(distances: Distances, rule: DistanceRule = SQUARED) -> Callable[[ScoredRound], object]:
    """Return a way to compute distances; those of directions in a round with a displacement."""

    def way(one: ScoredRound) -> object:
        last = next(reversed(one.updates.values()))
        travel = np.ascontiguousarray(last[::-1]) if rule is DIRECTION else None
        return distances(rule, travel, one.updates, one.members)

    return way


def _naive(
    _rule: DistanceRule,
    _travel: distance.Travel,
    updates: Mapping[ClientId, NDArray[np.float32]],
    members: Sequence[ClientId],
) -> NDArray[np.float64]:
    """Return squared distances as the authors' code takes norms: float32, pair by pair."""
    tensors = {client: torch.from_numpy(update) for client, update in updates.items()}
    rows = [[torch.norm(tensors[k] - tensors[c]).item() for k in updates] for c in members]
    return np.array(rows) ** 2


WAYS: dict[str, Callable[[ScoredRound], object]] = {
    "ours, 1 thread": _by(fast_distances(1)),
    "NumPy blocks": _by(distances.distances_by(distances.BlockedSquares)),
    "ours, 2 threads": _by(fast_distances(2)),
    "naive float32 loop": _by(_naive),
    "read and hashed": lambda one: [hashlib.sha256(f.read_bytes()).digest() for f in one.files],
    "pair by pair": _by(distance.plain_distances),
    "direction, 1 thread": _by(fast_distances(1), DIRECTION),
}


def _round_of(dimension: int, folder: Path) -> ScoredRound:
    rng = np.random.default_rng(3)
    updates, files = {}, []
    for place in range(MEMBERS + TRAINERS):
        updates[ClientId(place)] = rng.standard_normal(dimension, dtype=np.float32)
        files.append(folder / f"{place}.f32")
        updates[ClientId(place)].tofile(files[-1])
    return ScoredRound(updates, tuple(updates)[:MEMBERS], files)


if __name__ == "__main__":
    main()
