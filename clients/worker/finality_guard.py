"""Guard against a chain that takes back final blocks that a worker acted on."""

from __future__ import annotations

from ledger.chain.finality import AncestryCheck, FinalityCheckpoints
from ledger.chain.ports import Block, ChainReader

_MOST_HEADS = 128


class ChainFinalityGuard:
    """Compares a chain with the final blocks recorded on a worker's own disk."""

    def __init__(self, chain: ChainReader, acted_on: FinalityCheckpoints) -> None:
        """Guard a chain, given the final blocks that were acted on."""
        self._chain = chain
        self._acted_on = acted_on
        self._accepted: Block | None = None
        self._heads: dict[int, Block] = {}

    def require_unchanged(self, newest: Block, lineage: AncestryCheck) -> None:
        """Accept a chain that still has every block that was acted on.

        Blocks on top of an accepted head need no further comparison.
        """
        accepted, self._accepted = self._accepted, None
        if accepted is None or not lineage.connects(accepted, newest):
            self._heads.clear()
            self._acted_on.require_unchanged(self._chain, newest)
        self._accepted = newest
        self._heads[newest.number] = newest
        if len(self._heads) > _MOST_HEADS:
            del self._heads[next(iter(self._heads))]

    def act_on(self, block_number: int) -> None:
        """Record a final block before it is acted on."""
        newest = self._acted_on.newest
        if newest is not None and block_number <= newest:
            return
        block = self._heads.get(block_number)
        if block is None:
            block = self._chain.block(block_number)
            # The chain may have changed since its head was accepted: the next look tells.
            self._accepted = None
        self._acted_on.note(block)
