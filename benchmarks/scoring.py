"""Cost of what members and auditors compute of a round's updates, beside a sha256 of each.

`python -m benchmarks.scoring` takes 108 updates and 43 members, and accepts the 65 updates of the
trainers. The works take turns, each on one thread. The naive loop is of a few members, and its
seconds are multiplied. A matrix product before and after shows whether the machine was quiet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.harness import MEASURED, Row, gemm_rate, keep, machine, show, timed
from ledger import distances
from ledger.protocol.rules.direction import clip_factors, exact_norm
from ledger.protocol.rules.distance import DIRECTION, SQUARED, plain_server_step
from ledger.protocol.types import ClientId

MEMBERS, TRAINERS, REPEATS = 43, 65, 3
DIMENSION = 6_600_000
NAIVE, NAIVE_MEMBERS = "distances, double loop of `torch.norm`", 4


def main() -> None:
    """Measure all works, print their seconds and write them down."""
    torch.set_num_threads(1)
    document: dict[str, Any] = {
        "machine": machine(),
        "d": DIMENSION,
        "numpy": np.__version__,
        "plain because": distances.fallback_reason(),
        "gemm before, GF/s": gemm_rate(),
        "works": measured(works()),
        "gemm after, GF/s": gemm_rate(),
    }
    show(document["works"])
    keep(MEASURED / "scoring.json", document)


def measured(of_a_round: dict[str, tuple[int, Callable[[], object]]]) -> list[Row]:
    """Return the median processor time of each work, and of each update in it."""
    times: dict[str, list[float]] = {name: [] for name in of_a_round}
    for _ in range(REPEATS):
        for name, (_, work) in of_a_round.items():
            times[name].append(timed(work)[1].cpu)
    cpu = {name: median(seconds) for name, seconds in times.items()}
    cpu[NAIVE] *= MEMBERS / NAIVE_MEMBERS
    return [
        {
            "work": name,
            "s a round": round(cpu[name], 3),
            "ms an update": round(1e3 * cpu[name] / n, 2),
        }
        for name, (n, _) in of_a_round.items()
    ]


def works() -> dict[str, tuple[int, Callable[[], object]]]:
    """Return each work in one round, with the number of updates that it is of."""
    rng, count = np.random.default_rng(3), MEMBERS + TRAINERS
    rows = [rng.standard_normal(DIMENSION, dtype=np.float32) for _ in range(count)]
    updates = dict(zip(map(ClientId, range(count)), rows, strict=True))
    members, accepted = list(updates)[:MEMBERS], dict(list(updates.items())[MEMBERS:])
    travel = np.ascontiguousarray(rows[-1][::-1])
    step = rows[0], rows[MEMBERS:], [1 / TRAINERS] * TRAINERS, 1.0

    def naive() -> object:
        """Return squared distances as the authors' code takes norms: float32, pair by pair."""
        tensors = list(map(torch.from_numpy, rows))
        return [[torch.norm(a - b).item() ** 2 for a in tensors] for b in tensors[:NAIVE_MEMBERS]]

    blocked, fast = distances.distances_by(distances.BlockedSquares), distances.fast_distances()
    squared = SQUARED, None, updates, members
    return {
        "distances, strategies 1 and 2": (count, lambda: fast(*squared)),
        "distances, strategies 1 and 2, in NumPy": (count, lambda: blocked(*squared)),
        NAIVE: (count, naive),
        "distances, strategy 3": (count, lambda: fast(DIRECTION, travel, updates, members)),
        "clip, strategy 3": (count, lambda: clip_factors(accepted, updates)),
        "exact norms": (count, lambda: list(map(exact_norm, rows))),
        "aggregate": (TRAINERS, lambda: distances.fast_server_step()(*step)),
        "aggregate in NumPy": (TRAINERS, lambda: plain_server_step(*step)),
        "sha256": (count, lambda: [hashlib.sha256(row.data).digest() for row in rows]),
    }


if __name__ == "__main__":
    main()
