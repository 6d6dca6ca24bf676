"""A contract as of the newest final block, for whoever does what cannot be taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from ledger.chain.contract.committee_ledger import CommitteeLedger

if TYPE_CHECKING:
    from ledger.chain.contract.committee_ledger import LedgerSnapshot


class FinalLedger(CommitteeLedger):
    """What is final of a contract: where no block is named, the newest final one is meant.

    A reorganisation may open a round again that has ended at the head; who has removed its payloads
    by then has lost them. Every method may also raise a ChainError where the chain has final blocks
    and its node names none.
    """

    @classmethod
    def of(cls, ledger: CommitteeLedger) -> Self:
        """Return what is final of a contract.

        Args:
            ledger: the contract.
        """
        return cls(ledger.chain, ledger.address, ledger.from_block)

    def state(self, block_number: int | None = None) -> LedgerSnapshot:
        """Return the contract's storage.

        Args:
            block_number: the block whose state it is; None for the newest final one.

        Raises:
            ChainError: the address holds no such contract then, or the chain is unreachable.
        """
        return super().state(self._last(block_number))

    def _last(self, to_block: int | None) -> int:
        return self.chain.finalized() if to_block is None else to_block
