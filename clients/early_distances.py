"""Distances computed in advance, in parallel with the chain's transactions.

Once all clients of a round are trained, its distances are determined, but they are requested only
after the chain has closed the inputs. One thread computes them while the transactions are mined. A
squared distance has the same bytes with any other updates in the call, so members get the same
result with and without it; directions are taken only of the same updates.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.rules.distance import DistanceRule, Distances, Travel, Updates
from ledger.protocol.types import ClientId


@dataclass(frozen=True, slots=True)
class _EarlyMatrix:
    """Distances in computation.

    Attributes:
        travel: w_s − w_t, shape (d,); None where the distances need none.
        members: clients that may score.
        matrix: the result, which may be pending.
    """

    rule: DistanceRule
    travel: Travel
    updates: Updates
    members: tuple[ClientId, ...]
    matrix: Future[NDArray[np.float64]]

    def covers(
        self,
        rule: DistanceRule,
        travel: Travel,
        updates: Updates,
        members: Sequence[ClientId],
    ) -> bool:
        """Return whether these distances are among the computed ones."""
        if rule != self.rule or travel is not self.travel:
            return False
        if rule.between is None and updates.keys() != self.updates.keys():
            return False
        return set(members) <= set(self.members) and all(
            client in self.updates and _are_one(update, self.updates[client])
            for client, update in updates.items()
        )


class EarlyDistances:
    """A counterpart of the given distances that computes some of them in advance."""

    def __init__(self, distances: Distances) -> None:
        self._distances = distances
        self._early: _EarlyMatrix | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="distances")

    def begin(
        self,
        rule: DistanceRule,
        travel: Travel,
        updates: Updates,
        members: Sequence[ClientId],
    ) -> None:
        """Start to compute the distances of a round, replacing earlier ones.

        Args:
            travel: w_s − w_t, shape (d,); None where the distances need none.
            updates: all that may be usable, of one length; unchanged until `drop`.
            members: clients that may score.
        """
        self.drop()
        arguments = rule, travel, updates, tuple(members)
        self._early = _EarlyMatrix(*arguments, self._thread.submit(self._quietly, *arguments))

    def drop(self) -> None:
        """Drop the computed distances, once the thread no longer reads the updates."""
        if self._early is not None and not self._early.matrix.cancel():
            self._early.matrix.exception()
        self._early = None

    def __call__(
        self,
        rule: DistanceRule,
        travel: Travel,
        updates: Updates,
        members: Sequence[ClientId],
    ) -> NDArray[np.float64]:
        """Return the distances of all updates to the members', shape (members, updates)."""
        early = self._early
        if early is None or not early.covers(rule, travel, updates, members):
            return self._distances(rule, travel, updates, members)
        column_of = {client: column for column, client in enumerate(sorted(early.updates))}
        rows = [early.members.index(member) for member in members]
        columns = [column_of[client] for client in sorted(updates)]
        return early.matrix.result()[np.ix_(rows, columns)]

    def _quietly(
        self,
        rule: DistanceRule,
        travel: Travel,
        updates: Updates,
        members: Sequence[ClientId],
    ) -> NDArray[np.float64]:
        # Updates that are not finite are excluded later; their distances are never requested.
        with np.errstate(all="ignore"):
            return self._distances(rule, travel, updates, members)


def _are_one(update: NDArray[np.float32], other: NDArray[np.float32]) -> bool:
    here, there = update.__array_interface__["data"][0], other.__array_interface__["data"][0]
    return bool(here == there and update.shape == other.shape)
