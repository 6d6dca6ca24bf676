"""What a worker has built on, and whether the chain still has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ledger.chain.finality.ancestry import AncestryCheck
    from ledger.chain.finality.checkpoints import FinalityCheckpoints
    from ledger.chain.ports import Block, ChainReader

_MOST_HEADS = 128


class FinalityGuard(Protocol):
    """Watches that nothing final is taken back."""

    def require_unchanged(self, newest: Block, lineage: AncestryCheck) -> None:
        """Accept a chain that still has all that was acted on.

        Args:
            newest: the chain's newest block, just seen.
            lineage: of its blocks.

        Raises:
            ChainError: it has not, so that nothing more may be signed; or it is unreachable.
        """

    def act_on(self, block_number: int) -> None:
        """Write down that a final block is acted on, before it is.

        Args:
            block_number: of the block.

        Raises:
            ChainError: it is not the block that was acted on before, or the chain is unreachable.
            OSError: it cannot be written down.
        """


class NoFinalityGuard:
    """For ledgers in the memory of one process, which take nothing back."""

    def require_unchanged(self, newest: Block, lineage: AncestryCheck) -> None:
        """Accept everything."""

    def act_on(self, block_number: int) -> None:
        """Write down nothing."""


class ChainFinalityGuard:
    """Watches a chain by what a worker's own disk remembers."""

    def __init__(self, chain: ChainReader, acted_on: FinalityCheckpoints) -> None:
        """Watch a chain.

        Args:
            chain: that is acted on.
            acted_on: the final blocks so far.
        """
        self._chain = chain
        self._acted_on = acted_on
        self._accepted: Block | None = None
        self._heads: dict[int, Block] = {}

    def require_unchanged(self, newest: Block, lineage: AncestryCheck) -> None:
        """Accept a chain that still has all that was acted on.

        What stands on a head that was accepted has all that was acted on when it was.

        Args:
            newest: the chain's newest block, just seen.
            lineage: of its blocks.

        Raises:
            ReorganisedError: it has another block where one was final.
            ChainBehindError: it ends before the newest of them.
            ChainError: it is unreachable or damaged.
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
        """Write down that a final block is acted on.

        Args:
            block_number: of the block.

        Raises:
            ReorganisedError: it is not the block that was acted on before.
            ChainError: the chain is unreachable or damaged.
            OSError: it cannot be written down.
        """
        newest = self._acted_on.newest
        if newest is not None and block_number <= newest:
            return
        block = self._heads.get(block_number)
        if block is None:
            block = self._chain.block(block_number)
            # The chain may have changed since its head was accepted: the next look tells.
            self._accepted = None
        self._acted_on.note(block)
