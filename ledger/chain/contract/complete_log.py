"""A contract's log, verified to be complete: it folds to the contract's own state.

A node may leave logs out: a load balancer with one node behind the others, a pruned or damaged
index, or a false answer. Conclusions from the absence of a log (the round is open, a client has not
committed, no client was banned) are therefore drawn here: from all logs up to one block, checked
against `state()` after the same block. Later answers come from these logs and cannot differ. A
caller that polls keeps one `CompleteLog`, which reads new blocks only.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

from ledger.chain.contract.committee_ledger import CommitteeLedger
from ledger.chain.contract.storage_comparison import require_complete, view_after
from ledger.chain.offline import OfflineChain, matches_topics
from ledger.chain.ports import ChainMovedError, NotServedError
from ledger.protocol.fold import LedgerView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.chain.ports import Block, ChainReader, Log, Receipt, TopicFilter, Transaction

ATTEMPTS = 3
"""Readings after which a chain that is reorganised during each of them is given up."""

_NUMBER = attrgetter("block_number")


class CompleteLog:
    """Incremental reader of a contract's verified log. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._block: Block | None = None
        self._logs: tuple[Log, ...] = ()
        self._view: LedgerView | None = None

    def up_to(self, ledger: CommitteeLedger, block: Block | None = None) -> CommitteeLedger:
        """Return a contract as of one block (None for the newest), with all of its events so far.

        Raises:
            IncompleteLogsError: the logs do not fold to the contract's state after that block.
            ChainMovedError: the chain has dropped that block, or is reorganised again and again.
            ChainError: the chain is unreachable or damaged.
        """
        attempts = ATTEMPTS if block is None else 1
        while True:
            target = ledger.chain.head() if block is None else block
            with self._lock:
                logs = self._read(ledger, target)
            if logs is not None:
                break
            attempts -= 1
            if not attempts:
                raise ChainMovedError(ledger.chain.node, target.number)
        view, fixed = _PinnedChain(ledger.chain, target, ledger.address, logs), ledger.deployment()
        return CommitteeLedger(view, ledger.address, ledger.from_block, fixed)

    def _read(self, ledger: CommitteeLedger, target: Block) -> tuple[Log, ...] | None:
        """Return all logs up to a block; None if the chain does not have that block.

        Raises:
            IncompleteLogsError: they do not fold to the contract's state after that block.
        """
        chain, verified = ledger.chain, self._block
        if verified is not None and verified != target and not _holds(chain, verified):
            verified = None
        if verified is not None and target.number <= verified.number:
            if verified != target and not _holds(chain, target):
                return None
            return self._logs[: bisect_right(self._logs, target.number, key=_NUMBER)]
        if verified is None or self._view is None:
            before: tuple[Log, ...] = ()
            first = ledger.from_block
            view = LedgerView.at_deployment(ledger.deployment())
        else:
            before, first, view = self._logs, verified.number + 1, self._view
        new_logs = chain.logs(ledger.address, [], first, target.number)
        state = ledger.state(target.number)
        if not _holds(chain, target):
            return None
        view = view_after(view, ledger.possible(new_logs))
        require_complete(view, state, target.number, chain.node)
        self._block, self._logs, self._view = target, (*before, *new_logs), view
        return self._logs


def complete_ledger(ledger: CommitteeLedger) -> CommitteeLedger:
    """Return a contract as of the newest block with all of its events; see `CompleteLog.up_to`."""
    return CompleteLog().up_to(ledger)


def _holds(chain: ChainReader, block: Block) -> bool:
    return chain.block(block.number).hash == block.hash


class _PinnedChain(OfflineChain):
    """A chain as of one block, with the logs of one contract that were read up to there."""

    def __init__(
        self, chain: ChainReader, newest: Block, address: str, logs: tuple[Log, ...]
    ) -> None:
        self._chain = chain
        self._newest = newest
        self._address = address
        self._logs = logs
        self.chain_id = chain.chain_id
        self.genesis_hash = chain.genesis_hash

    @property
    def node(self) -> str | None:
        """Address of the node that answers everything but logs."""
        return self._chain.node

    def head(self) -> Block:
        """Return the pinned block."""
        return self._newest

    def block(self, number: int) -> Block:
        """Return one block."""
        return self._chain.block(number)

    def finalized(self) -> int:
        """Return the number of the newest final block, at most the pinned one's."""
        return min(self._chain.finalized(), self._newest.number)

    def call(self, to: str, data: bytes, block_number: int | None = None) -> bytes:
        """Return a contract's answer as of a block, None for the pinned one."""
        number = self._newest.number if block_number is None else block_number
        return self._chain.call(to, data, number)

    def code(self, address: str) -> bytes:
        """Return a contract's runtime code."""
        return self._chain.code(address)

    def logs(
        self,
        address: str | None,
        topics: Sequence[TopicFilter],
        from_block: int,
        to_block: int,
        limit: int | None = None,
        *,
        descending: bool = False,
    ) -> list[Log]:
        """Return the contract's logs that match.

        Raises:
            NotServedError: another contract's logs are requested.
        """
        if address != self._address:
            raise NotServedError(f"the logs of {address} were not read, {self._address}'s were")
        first = bisect_left(self._logs, from_block, key=_NUMBER)
        end = bisect_right(self._logs, to_block, key=_NUMBER)
        matching = [log for log in self._logs[first:end] if matches_topics(log, topics)]
        return (matching[::-1] if descending else matching)[:limit]

    def transaction(self, transaction_hash: bytes) -> Transaction:
        """Return a mined transaction."""
        return self._chain.transaction(transaction_hash)

    def receipt(self, transaction_hash: bytes) -> Receipt | None:
        """Return a transaction's receipt."""
        return self._chain.receipt(transaction_hash)
