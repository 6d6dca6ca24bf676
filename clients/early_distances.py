"""Distances that are begun before anybody asks for them, beside what the caller does meanwhile.

Once all clients of a round are trained, all of its distances are determined, but nobody asks for
them before the chain has closed the inputs. One thread computes them while the transactions go
through. It touches the updates and nothing else, and a pair's distance has the same bytes whoever
else is in the call, so what members find is the same with and without.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from numpy.typing import NDArray

    from ledger.protocol.rules.distance import DistanceContext, DistanceRule, Distances, Updates
    from ledger.protocol.types import ClientId


@dataclass(frozen=True, slots=True)
class Begun:
    """What a thread computes.

    Attributes:
        rule: the distance.
        context: of the round.
        updates: those of the round.
        members: those of its clients that may score.
        matrix: the result, which may still have to be waited for.
    """

    rule: DistanceRule
    context: DistanceContext
    updates: Updates
    members: tuple[ClientId, ...]
    matrix: Future[NDArray[np.float64]]

    def covers(
        self,
        rule: DistanceRule,
        context: DistanceContext,
        updates: Updates,
        members: Sequence[ClientId],
    ) -> bool:
        """Say whether these distances are among those that were begun."""
        if (rule, context) != (self.rule, self.context):
            return False
        if rule.needs_all and updates.keys() != self.updates.keys():
            return False
        return set(members) <= set(self.members) and all(
            client in self.updates and _are_one(update, self.updates[client])
            for client, update in updates.items()
        )


class EarlyDistances:
    """A twin of the distances that it is made of, some of which it has begun before."""

    def __init__(self, distances: Distances) -> None:
        self._distances = distances
        self._begun: Begun | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="distances")

    def begin(
        self,
        rule: DistanceRule,
        context: DistanceContext,
        updates: Updates,
        members: Sequence[ClientId],
    ) -> None:
        """Begin the distances of a round; those that were begun before are dropped.

        Args:
            rule: the distance.
            context: of the round.
            updates: all that may be usable, of one length; they stay as they are until `drop`.
            members: those of the clients that may score.
        """
        self.drop()
        asked = rule, context, updates, tuple(members)
        self._begun = Begun(*asked, self._thread.submit(self._quietly, *asked))

    def drop(self) -> None:
        """Let go of what was begun, once the thread no longer reads the updates."""
        if self._begun is not None and not self._begun.matrix.cancel():
            self._begun.matrix.exception()
        self._begun = None

    def __call__(
        self,
        rule: DistanceRule,
        context: DistanceContext,
        updates: Updates,
        members: Sequence[ClientId],
    ) -> NDArray[np.float64]:
        """Return the distances of all updates from the members', shape (members, updates)."""
        begun = self._begun
        if begun is None or not begun.covers(rule, context, updates, members):
            return self._distances(rule, context, updates, members)
        places = {client: place for place, client in enumerate(sorted(begun.updates))}
        rows = [begun.members.index(member) for member in members]
        columns = [places[client] for client in sorted(updates)]
        return begun.matrix.result()[np.ix_(rows, columns)]

    def _quietly(
        self,
        rule: DistanceRule,
        context: DistanceContext,
        updates: Updates,
        members: Sequence[ClientId],
    ) -> NDArray[np.float64]:
        # Whoever's update is not finite is found out later, and nobody asks for its distances.
        with np.errstate(all="ignore"):
            return self._distances(rule, context, updates, members)


def _are_one(update: NDArray[np.float32], other: NDArray[np.float32]) -> bool:
    """Say whether two arrays are the same numbers in the same memory."""
    here, there = update.__array_interface__["data"][0], other.__array_interface__["data"][0]
    return bool(here == there and update.shape == other.shape)
