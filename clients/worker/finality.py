"""What a worker has built on, and whether the chain still has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ledger.chain.finality.acted_on import ActedOn
    from ledger.chain.ports import Block, ChainReader


class Finality(Protocol):
    """Watches that nothing final is taken back."""

    def require_unchanged(self) -> None:
        """Accept a chain that still has all that was acted on.

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


class Unwatched:
    """For ledgers in the memory of one process, which take nothing back."""

    def require_unchanged(self) -> None:
        """Accept everything."""

    def act_on(self, block_number: int) -> None:
        """Write down nothing."""


class Watched:
    """Watches a chain by what a worker's own disk remembers."""

    def __init__(self, chain: ChainReader, acted_on: ActedOn) -> None:
        """Watch a chain.

        Args:
            chain: that is acted on.
            acted_on: the final blocks so far.
        """
        self._chain = chain
        self._acted_on = acted_on
        self._head: Block | None = None

    def require_unchanged(self) -> None:
        """Accept a chain that still has all that was acted on."""
        head = self._chain.head()
        if self._head is None or head.hash != self._head.hash:
            self._acted_on.require_unchanged(self._chain)
            self._head = head

    def act_on(self, block_number: int) -> None:
        """Write down that a final block is acted on."""
        newest = self._acted_on.newest
        if newest is None or block_number > newest:
            self._acted_on.note(self._chain.block(block_number))
