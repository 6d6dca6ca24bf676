"""A contract's log, verified to be complete: it folds to the contract's own storage.

A node may leave logs out: a load balancer with one node behind the others, a pruned or damaged
index, or a false answer. Conclusions from the absence of a log (the round is open, a client has not
committed, no client was banned) are therefore drawn here: from all logs up to one block, checked
against `state()` after the same block. Later answers come from these logs and cannot differ. A
caller that polls keeps one `CompleteLog`, which reads new blocks only.

Everything that the contract records moves its storage: a batch of clients what is left to register,
a commitment the running digest of the round's commitments, a ban the head, the end of a round head
and number. Heads and digests are recomputed by the fold, so events that lead to the storage are all
there, and none was altered in anything that a head commits to.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING

from ledger.chain.contract.committee_ledger import CommitteeLedger, LedgerSnapshot
from ledger.chain.ports import (
    ChainMovedError,
    IncompleteLogsError,
    NotServedError,
    OfflineChain,
    matches_topics,
)
from ledger.protocol import encoding
from ledger.protocol.fold import LedgerView
from ledger.protocol.ledger_state import LedgerStage
from ledger.protocol.types import NO_DIGEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.chain.ports import Block, ChainReader, Log, Receipt, TopicFilter, Transaction


def view_after(view: LedgerView, events: Iterable[RecordedEvent]) -> LedgerView:
    """Return the state after further events, oldest first."""
    for recorded in events:
        view = view.after(recorded.event, recorded.block_number)
    return view


def storage_difference(view: LedgerView, storage: LedgerSnapshot) -> str | None:
    """Return how the contract's storage differs from what its events lead to, None if it does not.

    Args:
        view: the state that all events so far lead to.
        storage: as the contract answers after the block of the last of them.
    """
    if view.deployments != 1:
        return f"the logs deploy the contract {view.deployments} times"
    fixed, registered = view.deployment, len(view.registry)
    if view.registry_digest(storage.registry_rest) != fixed.registry:
        return (
            f"the logs register {registered} clients, and the contract was deployed for "
            f"{fixed.clients}, of whom it has {storage.registered}"
        )
    is_open = view.stage is not LedgerStage.REGISTERING
    expected = LedgerSnapshot(
        stage=view.stage,
        round=view.round,
        opened_block=view.opened_block,
        seed=view.seed,
        committee=encoding.set_digest(view.committee) if is_open else NO_DIGEST,
        model=view.model,
        head=view.head,
        registered=registered,
        registry_rest=storage.registry_rest,
        commitments=view.commitments,
    )
    for each in fields(LedgerSnapshot):
        from_logs, stored = getattr(expected, each.name), getattr(storage, each.name)
        if from_logs != stored:
            return (
                f"the logs lead to {each.name} {_shown(from_logs)}, and the contract has "
                f"{_shown(stored)}"
            )
    return None


def require_complete(
    view: LedgerView, storage: LedgerSnapshot, block_number: int, node: str | None
) -> None:
    """Raise an IncompleteLogsError unless the events so far lead to the storage after a block."""
    difference = storage_difference(view, storage)
    if difference is not None:
        raise IncompleteLogsError(node, f"up to block {block_number} {difference}")


def _shown(value: object) -> str:
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return value.name.lower() if isinstance(value, LedgerStage) else str(value)


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
