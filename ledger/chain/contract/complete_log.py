"""A contract's log that is known to be complete, because it leads to the contract's own state.

A node may leave logs out: a load balancer with one node behind the others, a pruned or damaged
index, a lie. Whoever concludes something from what is not in the log - that a round is open, that
nobody committed, that nobody was banned - reads it through here: all of it up to one block, held
against `state()` after the very same block (`folded_state`). The answers are then given from what
was read, so that no later answer can be another.

Whoever looks again and again holds one of these: only what is new is read.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

from ledger.chain.contract.committee_ledger import CommitteeLedger
from ledger.chain.contract.folded_state import FoldedState
from ledger.chain.offline import OfflineChain, matches_topics
from ledger.chain.ports import ChainMovedError, NotServedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.chain.ports import Block, ChainReader, Log, Receipt, TopicFilter, Transaction

ATTEMPTS = 3
"""Readings before a chain is given up whose newest block is another one after each of them."""

_NUMBER = attrgetter("block_number")


class CompleteLog:
    """Reads a contract's log from one block to a later one. Safe to share between threads."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._lock = threading.Lock()
        self._block: Block | None = None
        self._logs: tuple[Log, ...] = ()
        self._folded: FoldedState | None = None

    def up_to(self, ledger: CommitteeLedger, block: Block | None = None) -> CommitteeLedger:
        """Return a contract as of one block, with all of its events up to there.

        Args:
            ledger: the contract, always the same.
            block: as of which; None for the newest.

        Raises:
            IncompleteLogsError: the logs do not lead to the contract's state after that block.
            ChainMovedError: the chain does not hold that block any more, or moves all the time.
            ChainError: the chain is unreachable or damaged.
        """
        attempts = ATTEMPTS if block is None else 1
        while True:
            wanted = ledger.chain.head() if block is None else block
            with self._lock:
                logs = self._read(ledger, wanted)
            if logs is not None:
                break
            attempts -= 1
            if not attempts:
                raise ChainMovedError(ledger.chain.node, wanted.number)
        view, fixed = _PinnedChain(ledger.chain, wanted, ledger.address, logs), ledger.deployment()
        return CommitteeLedger(view, ledger.address, ledger.from_block, fixed)

    def _read(self, ledger: CommitteeLedger, wanted: Block) -> tuple[Log, ...] | None:
        """Return all logs up to a block, None if the chain does not hold that block.

        Raises:
            IncompleteLogsError: they do not lead to the contract's state after that block.
        """
        chain, known = ledger.chain, self._block
        if known is not None and known != wanted and not _holds(chain, known):
            known = None
        if known is not None and wanted.number <= known.number:
            if known != wanted and not _holds(chain, wanted):
                return None
            return self._logs[: bisect_right(self._logs, wanted.number, key=_NUMBER)]
        if known is None or self._folded is None:
            before: tuple[Log, ...] = ()
            first = ledger.from_block
            folded = FoldedState.at_deployment(ledger.deployment())
        else:
            before, first, folded = self._logs, known.number + 1, self._folded
        news = chain.logs(ledger.address, [], first, wanted.number)
        state = ledger.state(wanted.number)
        if not _holds(chain, wanted):
            return None
        folded = folded.after(ledger.possible(news))
        folded.require(state, wanted.number, chain.node)
        self._block, self._logs, self._folded = wanted, (*before, *news), folded
        return self._logs


def complete_ledger(ledger: CommitteeLedger) -> CommitteeLedger:
    """Return a contract as of the newest block, with all of its events up to there.

    Args:
        ledger: the contract.

    Raises:
        IncompleteLogsError: the logs do not lead to the contract's state after that block.
        ChainMovedError: the chain moves all the time.
        ChainError: the chain is unreachable or damaged.
    """
    return CompleteLog().up_to(ledger)


def _holds(chain: ChainReader, block: Block) -> bool:
    return chain.block(block.number).hash == block.hash


class _PinnedChain(OfflineChain):
    """A chain as of one block, and one contract's logs as they were read up to there."""

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
        """The address of the node that answers all but the logs."""
        return self._chain.node

    def head(self) -> Block:
        """Return the block that this is as of."""
        return self._newest

    def block(self, number: int) -> Block:
        """Return one block."""
        return self._chain.block(number)

    def finalized(self) -> int:
        """Return the number of the newest final block, up to the one that this is as of."""
        return min(self._chain.finalized(), self._newest.number)

    def call(self, to: str, data: bytes, block_number: int | None = None) -> bytes:
        """Return what a contract answers as of a block, None for the newest."""
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
            NotServedError: another contract's are asked for.
        """
        if address != self._address:
            raise NotServedError(f"the logs of {address} were not read, {self._address}'s were")
        first = bisect_left(self._logs, from_block, key=_NUMBER)
        end = bisect_right(self._logs, to_block, key=_NUMBER)
        matching = [log for log in self._logs[first:end] if matches_topics(log, topics)]
        return (matching[::-1] if descending else matching)[:limit]

    def transaction(self, transaction_hash: bytes) -> Transaction:
        """Return a transaction that a block holds."""
        return self._chain.transaction(transaction_hash)

    def receipt(self, transaction_hash: bytes) -> Receipt | None:
        """Return a transaction's receipt."""
        return self._chain.receipt(transaction_hash)
