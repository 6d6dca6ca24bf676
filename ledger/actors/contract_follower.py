"""The contract after the newest final block, read on from the final block before.

What is final does not change, so only the events since are read, and those only if the contract's
storage moved: every event moves it (`complete_log`), and heads and digests are chains of
hashes, which never return to an earlier value. Where the storage moved, the events since must lead
to it: a node that lags behind or leaves an event out contradicts the contract's own answer.

Who reads the events of its own transactions may leave the storage for a later reading, which
compares all events since.

Reading goes on only from a block that the chain is certain to contain still. Otherwise - after a
restart, a reorganisation, on a node that ends before, or that contradicts what was read -
everything is read again, from the block that created the contract.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ledger.chain.contract.event_log import require_complete, view_after
from ledger.chain.contract.ledger import LedgerSnapshot
from ledger.chain.finality import AncestryCheck
from ledger.chain.ports import Block, NotServedError
from ledger.chain.round_ledger import RoundHistory
from ledger.protocol.fold import LedgerView
from ledger.protocol.ledger_state import LedgerStage


@dataclass(frozen=True, slots=True)
class FollowedContract:
    """The contract after a final block.

    Attributes:
        storage: as the contract answered after it; None where it was not asked.
    """

    head: Block
    final_block: int
    storage: LedgerSnapshot | None
    view: LedgerView

    @property
    def open_round(self) -> LedgerView | None:
        """The contract's state while a round is open, else None."""
        return self.view if self.view.stage is LedgerStage.OPEN else None


class ContractFollower:
    """Reads a contract from one final block to the next.

    Attributes:
        newest: what was read last; None before.
    """

    def __init__(self, ledger: RoundHistory, ancestry: AncestryCheck) -> None:
        """Follow a contract; nothing is read yet."""
        self._ledger = ledger
        self._ancestry = ancestry
        self.newest: FollowedContract | None = None

    def read(self, head: Block, final_block: int, *, verifies: bool = True) -> FollowedContract:
        """Return the contract after a final block.

        Args:
            verifies: whether to ask for the contract's storage, and to compare the events with it.
        """
        before = self.newest
        if before is not None and not self._continues(before, head, final_block):
            before = None
        is_read = before is not None and before.final_block == final_block
        if before is not None and is_read and (before.storage is not None or not verifies):
            self.newest = replace(before, head=head)
            return self.newest
        storage = self._ledger.state(final_block) if verifies else None
        try:
            self.newest = self._read(before, head, final_block, storage)
        except NotServedError:
            # The earlier reading may be wrong, if one address hides several nodes.
            self.newest = None
            raise
        return self.newest

    def _continues(self, before: FollowedContract, head: Block, final_block: int) -> bool:
        return before.final_block <= final_block and self._ancestry.connects(before.head, head)

    def _read(
        self,
        before: FollowedContract | None,
        head: Block,
        final_block: int,
        storage: LedgerSnapshot | None,
    ) -> FollowedContract:
        """Return the contract after a final block, given an earlier one."""
        if before is not None and storage is not None and before.storage == storage:
            return replace(before, head=head, final_block=final_block)
        if before is None:
            first = self._ledger.from_block
            view = LedgerView.at_deployment(self._ledger.deployment())
        else:
            first, view = before.final_block + 1, before.view
        view = view_after(view, self._ledger.recorded_in(first, final_block))
        if storage is not None:
            require_complete(view, storage, final_block, self._ledger.node)
        return FollowedContract(head, final_block, storage, view)
