"""A contract as of the newest final block, for irreversible actions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from ledger.chain.contract.committee_ledger import CommitteeLedger

if TYPE_CHECKING:
    from ledger.chain.contract.committee_ledger import LedgerSnapshot


class FinalLedger(CommitteeLedger):
    """The contract at the newest final block wherever no block is named.

    A reorganisation may reopen a round that has ended at the head; payloads removed by then would
    be lost. Every method may also raise ChainError if the chain has final blocks and its node names
    none.
    """

    @classmethod
    def of(cls, ledger: CommitteeLedger) -> Self:
        """Return the final view of a contract."""
        return cls(ledger.chain, ledger.address, ledger.from_block)

    def state(self, block_number: int | None = None) -> LedgerSnapshot:
        """Return the contract's storage after a block, None for the newest final one."""
        return super().state(self._last(block_number))

    def _last(self, to_block: int | None) -> int:
        return self.chain.finalized() if to_block is None else to_block
