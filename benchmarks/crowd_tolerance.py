"""Margins of references `crowd` and `peers`: how far do honest sums of hostile numbers differ?

`python -m benchmarks.crowd_tolerance --dimensions 1000 100000 10000000` computes the distances of
rounds that attackers would choose by four orders of summation: the compiled loop, the protocol's
plain rule, the compiled loop with the numbers in another order, and one running sum over all
numbers, which no member may use. It prints the largest difference between two of the first three,
and between two of all, as a share of the margin from which a distance may be refused, the largest
factor of crowding and the base, and how often two orders differ on which side of 2 a client's
median lies.
"""

from __future__ import annotations

import argparse
import json
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from ledger.distances.composed_rules import distances_by
from ledger.distances.fast import fast_distances
from ledger.io.named_files import write_named
from ledger.protocol.rules.direction import DirectionMeasure
from ledger.protocol.rules.distance import DistanceContext, ServerDirection, plain_distances
from ledger.protocol.rules.reference import CROWD, PEERS, ReferenceRule
from ledger.protocol.rules.registry import DISTANCES
from ledger.protocol.rules.scoring import median
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ledger.distances.composed_rules import Matrix
    from ledger.protocol.rules.distance import Distances

TRAINERS, MEMBERS = 10, 5
RESULTS = Path(__file__).parent / "results"
Vectors = NDArray[np.float32]


class RunningSquares:
    """Squared distances by one running sum over all numbers, the first to the last."""

    def __init__(self, updates: Sequence[Vectors], members: Sequence[int]) -> None:
        self.dimension, self.members, self._updates = len(updates[0]), members, updates

    def squares(self, start: int, stop: int, norms: NDArray[np.float64] | None = None) -> Matrix:
        """Return the squared distances over [start, stop), shape (members, clients)."""
        lengths = np.ones(len(self._updates)) if norms is None else norms
        total = np.zeros((len(self.members), len(self._updates)))
        for place, member in enumerate(self.members):
            own = self._updates[member][start:stop] / lengths[member]
            for row, update in enumerate(self._updates):
                delta = update[start:stop] / lengths[row] - own
                total[place, row] = np.cumsum(delta * delta)[-1]
        return total

    def norms(self) -> NDArray[np.float64]:
        """Return the length of each update, shape (clients,)."""
        wide = (update.astype(np.float64) for update in self._updates)
        return np.array([np.sqrt(np.cumsum(update * update)[-1]) for update in wide])


def main() -> None:
    """Measure what the command line asks for, print it and write it down."""
    arguments = _arguments()
    rows = [
        {"reference": rule.name, "d": dimension, "numbers": name, **differences(rule, *numbers)}
        for dimension in arguments.dimensions
        for name in arguments.kinds
        for numbers in [KINDS[name](dimension, arguments.seed)]
        for rule in (CROWD, PEERS)
    ]
    table = Table(*map(str, rows[0]))
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console().print(table)
    RESULTS.mkdir(exist_ok=True)
    write_named(arguments.out, f"{json.dumps(rows, indent=1)}\n".encode())


def differences(rule: ReferenceRule, vectors: Vectors, travel: Vectors) -> dict[str, object]:
    """Return the largest differences between two orders of summation.

    Args:
        rule: reference of the distances.
        vectors: updates of the trainers and then of the members, shape (clients, d).
        travel: displacement, shape (d,).
    """
    shuffle = np.random.default_rng(0).permutation(len(travel))
    rounds = {
        "compiled": (fast_distances(), vectors, travel),
        "plain": (plain_distances, vectors, travel),
        "shuffled": (fast_distances(), vectors[:, shuffle], travel[shuffle]),
        "running": (distances_by(RunningSquares), vectors, travel),
    }
    matrices = {name: _matrix(rule, *round_) for name, round_ in rounds.items()}
    updates, context = _round_of(rule, vectors, travel)
    measure = DirectionMeasure(updates, context.server_direction, context.penalty)
    share, running, sides = 0.0, 0.0, 0
    for pair in combinations(matrices, 2):
        one, other = (matrices[name] for name in pair)
        margins = [[measure.tolerance(updates[k], x) for k, x in enumerate(row)] for row in one]  # type: ignore[index]
        part = float((np.abs(one - other) / np.array(margins)).max())
        running = max(running, part)
        share = share if "running" in pair else max(share, part)
        sides += int(((median(one) < 2) != (median(other) < 2)).sum())
    return {
        "share of the margin": f"{share:.1e}",
        "with the running sum": f"{running:.1e}",
        "largest g": f"{measure.crowding.factors.max():.1e}",
        "base": f"{measure.crowding.base:.2e}",
        "sides that differ": sides,
    }


def _matrix(rule: ReferenceRule, compute: Distances, vectors: Vectors, travel: Vectors) -> Matrix:
    updates, context = _round_of(rule, vectors, travel)
    members = tuple(updates)[TRAINERS:]
    with np.errstate(under="ignore"):
        return compute(DISTANCES["direction"], context, updates, members)


def _round_of(
    rule: ReferenceRule, vectors: Vectors, travel: Vectors
) -> tuple[dict[ClientId, Vectors], DistanceContext]:
    assert rule.direction_weight is not None
    updates = {ClientId(i): np.ascontiguousarray(row) for i, row in enumerate(vectors)}
    direction = ServerDirection(np.ascontiguousarray(travel), tuple(updates), rule.direction_weight)
    return updates, DistanceContext((), direction, rule.penalty, rule.compares_all)


def _drawn(dimension: int, seed: int) -> tuple[Vectors, Vectors]:
    rng = np.random.default_rng(seed)
    size = TRAINERS + MEMBERS
    travel = rng.standard_normal(dimension, dtype=np.float32)
    vectors = rng.standard_normal((size, dimension), dtype=np.float32)
    return vectors + np.float32(0.01) * travel, travel


def _collinear(dimension: int, seed: int) -> tuple[Vectors, Vectors]:
    vectors, travel = _drawn(dimension, seed)
    return vectors[0] + np.float32(1e-6) * vectors, travel


def _along(dimension: int, seed: int) -> tuple[Vectors, Vectors]:
    vectors, travel = _drawn(dimension, seed)
    vectors[0], vectors[1], vectors[2] = travel, -travel, np.float32(1 + 1e-6) * travel
    return vectors, travel


def _equal(dimension: int, seed: int) -> tuple[Vectors, Vectors]:
    vectors, travel = _drawn(dimension, seed)
    return np.repeat(vectors[:1], len(vectors), axis=0), travel


def _of_one_sign(dimension: int, seed: int) -> tuple[Vectors, Vectors]:
    # A running sum of equal numbers errs the same way at each step.
    vectors, _ = _drawn(dimension, seed)
    vectors = np.float32(0.1) + np.float32(1e-3) * vectors
    return vectors, np.full(dimension, 0.3, dtype=np.float32)


def _wide(dimension: int, seed: int) -> tuple[Vectors, Vectors]:
    vectors, travel = _drawn(dimension, seed)
    scales = np.logspace(-20, 20, len(vectors))
    return (vectors * scales[:, None]).astype(np.float32), travel


def _subnormal(dimension: int, seed: int) -> tuple[Vectors, Vectors]:
    vectors, travel = _drawn(dimension, seed)
    vectors[::2] *= np.float32(1e-44)
    return vectors, travel * np.float32(1e-44)


def _pulling(dimension: int, seed: int) -> tuple[Vectors, Vectors]:
    vectors, travel = _drawn(dimension, seed)
    vectors[:3] += np.float32(0.9) * vectors[9]
    return vectors, travel


def _gap(dimension: int, seed: int) -> tuple[Vectors, Vectors]:
    """Draw lonely updates and a tight group, so that the base lies between two distant values."""
    vectors, travel = _drawn(dimension, seed)
    vectors[:4] = vectors[0] + np.float32(1e-3) * vectors[:4]
    vectors[4:8] += np.float32(0.4) * vectors[8]
    return vectors, travel


def _absorbed(dimension: int, seed: int) -> tuple[Vectors, Vectors]:
    """Let updates begin with their length: a sum that runs on absorbs the squares that follow."""
    vectors, common = _drawn(dimension, seed)
    vectors += np.float32(0.3) * common
    vectors[10:] = 2.0**-27
    vectors[10:, 0] = [1, 1, -1, 1, 1]
    return vectors, vectors[10] + np.float32(0.01) * common


KINDS: dict[str, Callable[[int, int], tuple[Vectors, Vectors]]] = {
    "as honest ones": _drawn,
    "near-collinear": _collinear,
    "along the travel": _along,
    "all equal": _equal,
    "of one sign": _of_one_sign,
    "40 orders of magnitude": _wide,
    "subnormal": _subnormal,
    "three that pull": _pulling,
    "a base in a gap": _gap,
    "absorbed by the first": _absorbed,
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dimensions", type=int, nargs="+", default=[100, 10_000, 1_000_000])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS / "crowd-tolerance.json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
