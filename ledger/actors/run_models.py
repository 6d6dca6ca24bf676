"""The models of a run: the newest, and the displacement that led to it.

Both ends of the travel are models that the contract names, read by their digests like any blob, so
a resumed run finds the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ledger.actors.actions import ActorContext
from ledger.actors.published_blobs import PublishedBlobs
from ledger.chain.round_ledger import RoundHistory, ends_after
from ledger.protocol.encoding import vector_from_bytes
from ledger.protocol.inputs import needs_displacement
from ledger.protocol.ledger_state import RoundDecided
from ledger.protocol.rules.direction import WINDOW, displacement, window_start
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from ledger.chain.contract.ledger import LedgerSnapshot


class RunModels:
    """Reads the models that the contract names; holds the newest, and the travel to it."""

    def __init__(
        self,
        context: ActorContext,
        published: PublishedBlobs,
        state: Callable[[int | None], LedgerSnapshot] | None = None,
        *,
        remembers: bool = False,
    ) -> None:
        """Look at a run.

        Args:
            published: what a driver of the same process has stored, which is not read again.
            state: returns what the contract kept after a block; None to ask the chain each time.
            remembers: hold a window's models, where nothing is stored that could be read again.
        """
        self._context = context
        self._published = published
        self._state = context.ledger.state if state is None else state
        has_travel = context.parameters.compares_directions
        self._most = WINDOW + 1 if has_travel and remembers else 1
        self._held: dict[Digest, NDArray[np.float32]] = {}
        self._travel: tuple[int, Digest, NDArray[np.float32]] | None = None

    def newest(self, block: int | None = None) -> NDArray[np.float32]:
        """Return w_t, shape (d,), as the contract names it."""
        digest = self._state(block).model
        # Last in order, also where an undecided round left the model as it was.
        self._held[digest] = self._held.pop(digest) if digest in self._held else self._read(digest)
        while len(self._held) > self._most:
            del self._held[next(iter(self._held))]
        return self._held[digest]

    def travel(self, round_number: int, block: int | None = None) -> NDArray[np.float32] | None:
        """Return w_s − w_t, shape (d,), of the open round; None where its distances need none.

        Args:
            block: the one after which it is open, None for the newest.
        """
        if not needs_displacement(self._context.parameters, round_number):
            return None
        now = self._state(block).model
        if self._travel is None or self._travel[:2] != (round_number, now):
            before = model_of_round(self._context.ledger, window_start(round_number))
            older = self._held[before] if before in self._held else self._read(before)
            self._travel = round_number, now, displacement(older, self.newest(block))
        return self._travel[2]

    def _read(self, digest: Digest) -> NDArray[np.float32]:
        dimension = self._context.parameters.dimension
        blob = self._published.find(digest)
        data = self._context.blobs.get(digest, 4 * dimension) if blob is None else blob.data
        return vector_from_bytes(data, dimension)


def model_of_round(ledger: RoundHistory, round_number: int) -> Digest:
    """Return the digest of w_s, the model that a round began with."""
    first = round_number - 2
    while round_number > 1:
        for event in reversed(ends_after(ledger, max(0, first))):
            if isinstance(event, RoundDecided) and event.round < round_number:
                return event.model
        if first <= 0:
            break
        first -= round_number - first  # the rounds just before it were abandoned
    return ledger.deployment().model
