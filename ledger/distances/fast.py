"""The fastest distances of this installation, used by members and auditors.

They are compiled where the extra `fast` is installed and the machine allows it, else computed by
NumPy in blocks that stay in the processor's cache. The two differ by far less than any verdict
tolerates. A Gram matrix would be faster, but loses the distances of nearly equal updates.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ledger.distances.machine_code import (
    MachineCode,
    NoMachineCodeError,
    StreamedSquares,
    machine_code,
)
from ledger.protocol.rules.direction import compared
from ledger.protocol.rules.distance import (
    DIRECTION,
    SQUARED,
    DistanceRule,
    Distances,
    Travel,
    Updates,
    plain_distances,
)
from ledger.protocol.types import ClientId

Matrix = NDArray[np.float64]  # shape (members, clients)


class PairSquares(Protocol):
    """Squared distances of one round's updates to those of some of them, the members."""

    def squares(self, norms: NDArray[np.float64] | None = None) -> Matrix:
        """Return the squared distances of all updates to the members', each divided by its norm."""

    def norms(self) -> NDArray[np.float64]:
        """Return the Euclidean length of each update, shape (clients,)."""


SquaresFactory = Callable[[Sequence[NDArray[np.float32]], Sequence[int]], PairSquares]
"""From updates, each contiguous of shape (d,), and the members' rows."""


def distances_by(squares_of: SquaresFactory) -> Distances:
    """Return a function that computes all distances of a round from an implementation of squares.

    It equals `plain_distances` within each rule's tolerance, and calls it for users' own rules,
    updates that are not float32 vectors, and empty rounds. Updates of different lengths are a
    ValueError.
    """

    def distances(
        rule: DistanceRule, travel: Travel, updates: Updates, members: Sequence[ClientId]
    ) -> Matrix:
        clients = sorted(updates)
        rows = [updates[client] for client in clients]
        if rule == DIRECTION and travel is not None and travel.any():
            rows.append(travel)  # one row more: all pairs with it come from the same stream
        is_composed = rule in {SQUARED, DIRECTION} and bool(clients) and bool(members)
        if not is_composed or not all(map(is_vector, rows)):
            return plain_distances(rule, travel, updates, members)
        if len({row.shape for row in rows}) > 1:
            raise ValueError("the updates differ in length")
        among = [np.ascontiguousarray(row) for row in rows]
        if rule == SQUARED:
            row_of = {client: row for row, client in enumerate(clients)}
            return squares_of(among, [row_of[member] for member in members]).squares()
        computed = _directions(squares_of(among, range(len(among))), len(clients))
        return np.tile(computed, (len(members), 1))

    return distances


def _directions(among: PairSquares, count: int) -> NDArray[np.float64]:
    """Return strategy III's distance of each update; a row behind the updates is the travel."""
    norms = among.norms()
    # A zero update is divided by 1: it has no direction, and its squares are not used.
    squares = among.squares(np.where(norms == 0, 1.0, norms))
    rows = np.flatnonzero(norms[:count])
    from_travel = squares[-1, rows] if len(norms) > count else None
    return compared(norms[:count], squares[np.ix_(rows, rows)], from_travel).distances


def is_vector(row: NDArray[np.float32]) -> bool:
    """Return whether compiled loops read an array once it is contiguous: a float32 vector."""
    return row.dtype == np.float32 and row.dtype.isnative and row.ndim == 1 and len(row) > 0


BLOCK = 8_192  # numbers of an update in one sum; the sums are added in order


@dataclass(frozen=True, slots=True)
class BlockedSquares:
    """The squares in NumPy; a pair's bytes do not depend on the other updates."""

    updates: Sequence[NDArray[np.float32]]
    members: Sequence[int]

    def squares(self, norms: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        count, rows = len(self.updates), sorted(set(self.members))
        # Of two members a pair is computed once: a - b and b - a have equal squares.
        pairs = [
            (row, one) for row in rows for one in range(count) if one not in rows or one >= row
        ]
        sums = np.zeros((count, count))
        with np.errstate(over="ignore", invalid="ignore"):
            for block in self._blocks(norms):
                delta = np.empty(block.shape[1])
                for row, one in pairs:
                    np.subtract(block[one], block[row], out=delta)
                    sums[row, one] += np.dot(delta, delta)
        among = np.ix_(rows, rows)
        sums[among] += sums[among].T
        return sums[list(self.members)]

    def norms(self) -> NDArray[np.float64]:
        sums = np.zeros(len(self.updates))
        with np.errstate(over="ignore", invalid="ignore"):
            for block in self._blocks(None):
                sums += [np.dot(row, row) for row in block]
        return np.sqrt(sums)

    def _blocks(self, norms: NDArray[np.float64] | None) -> Iterator[NDArray[np.float64]]:
        for start in range(0, len(self.updates[0]), BLOCK):
            parts = [update[start : start + BLOCK] for update in self.updates]
            block = np.array(parts, dtype=np.float64)
            yield block if norms is None else block / norms[:, None]


def fast_distances(threads: int = 1) -> Distances:
    """Return a function that computes all distances of a round, equal to `plain_distances`.

    The bytes of a distance do not depend on the number of threads; those of a squared distance do
    not depend on the other updates either. Nothing is compiled or imported before the first call.
    """
    if threads < 1:
        raise ValueError(f"distances on {threads} threads")

    def distances(
        rule: DistanceRule, travel: Travel, updates: Updates, members: Sequence[ClientId]
    ) -> NDArray[np.float64]:
        try:
            compute = distances_with(machine_code(), threads)
        except NoMachineCodeError:
            compute = distances_by(BlockedSquares)
        return compute(rule, travel, updates, members)

    return distances


def distances_with(code: MachineCode, threads: int = 1) -> Distances:
    """Return a function that computes all distances of a round by a compiled loop."""
    return distances_by(partial(StreamedSquares, code, threads))


def fallback_reason() -> str:
    """Return why distances are computed in NumPy here; empty if they are compiled."""
    try:
        machine_code()
    except NoMachineCodeError as error:
        return str(error)
    return ""


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
