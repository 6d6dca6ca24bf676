"""Pending transactions of a chain with timed blocks.

They are in memory, as on any node: after a crash the senders send them again. An account's
transactions have consecutive nonces. Every account's first transaction precedes all second ones, so
that no account can crowd out others.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from typing import TYPE_CHECKING

from ledger.chain.embedded.evm import next_base_fee
from ledger.chain.ports import ChainLockedError
from ledger.chain.rpc import wire
from ledger.protocol.encoding import checksum

if TYPE_CHECKING:
    from eth.abc import BlockHeaderAPI as Header
    from eth.abc import SignedTransactionAPI as Signed

    from ledger.chain.embedded.embedded_chain import EmbeddedChain
    from ledger.chain.embedded.reader import EmbeddedReader

_log = logging.getLogger(__name__)

MAX_PER_ACCOUNT = 64
MAX_TRANSACTIONS = 1_024


@dataclass(frozen=True, slots=True)
class _Pending:
    """A pending transaction, its hash (costly to compute), and its or its predecessor's arrival."""

    signed: Signed
    hash: bytes
    arrival: int


class TransactionPool:
    """Pending transactions. Safe to share between threads."""

    def __init__(self, chain: EmbeddedChain) -> None:
        self._chain = chain
        self._lock = threading.Lock()
        self._arrivals = count()
        # By account, and each account's by nonce, ascending.
        self._pending: dict[str, dict[int, _Pending]] = {}

    def add(self, signed: Signed) -> None:
        sender = checksum(bytes(signed.sender))
        with self._lock:
            of_sender = self._pending.get(sender, {})
            waiting = [entry.signed for entry in of_sender.values()]
            message = rejection_message(self._chain, signed, waiting)
            replaced = of_sender.get(signed.nonce)
            if message is None and replaced is None:
                message = self._full_message(sender, len(of_sender))
            if message is not None:
                raise wire.RpcFault(wire.SERVER_ERROR, message)
            arrival = next(self._arrivals) if replaced is None else replaced.arrival
            pending = _Pending(signed, bytes(signed.hash), arrival)
            self._pending.setdefault(sender, {})[signed.nonce] = pending

    def find(self, transaction_hash: bytes) -> Signed | None:
        with self._lock:
            for own in self._pending.values():
                for pending in own.values():
                    if pending.hash == transaction_hash:
                        return pending.signed
        return None

    def next_nonce(self, account: str) -> int:
        with self._lock:
            return max(self._pending.get(account, ()), default=-1) + 1

    def mine(self) -> None:
        with self._lock:
            # Every account's first transaction, then every second one, and so on.
            ranked = [
                (rank, pending.arrival, pending.signed)
                for own in self._pending.values()
                for rank, pending in enumerate(own.values())
            ]
        ordered = [signed for _, _, signed in sorted(ranked, key=lambda entry: entry[:2])]
        try:
            refused = self._chain.mine_pending(ordered)
        except ChainLockedError:
            raise
        except Exception:
            if not ordered:
                raise
            # One of them makes the EVM fail, and it is unknown which. No sender may stop the chain,
            # so all are dropped; senders can resend them.
            _log.exception("no block can be made of %d transactions: dropped", len(ordered))
            refused = frozenset(bytes(signed.hash) for signed in ordered)
            self._chain.mine_pending(())
        with self._lock:
            for account in tuple(self._pending):
                mined, own = self._chain.account(account)[0], self._pending[account]
                # Once one is refused, later nonces can never follow.
                possible = takewhile(lambda entry: entry[1].hash not in refused, own.items())
                remaining = {nonce: pending for nonce, pending in possible if nonce >= mined}
                self._pending[account] = remaining
                if not remaining:
                    del self._pending[account]

    def _full_message(self, sender: str, own: int) -> str | None:
        if own >= MAX_PER_ACCOUNT:
            return f"account limit exceeded: {own} transactions of {sender} wait"
        if sum(map(len, self._pending.values())) < MAX_TRANSACTIONS:
            return None
        largest = max(self._pending, key=lambda account: len(self._pending[account]))
        if len(self._pending[largest]) <= own + 1:
            return f"txpool is full: {MAX_TRANSACTIONS} transactions wait"
        self._pending[largest].popitem()
        return None


def rejection_message(
    chain: EmbeddedReader, signed: Signed, waiting: Sequence[Signed]
) -> str | None:
    """Return why a transaction cannot be accepted after its sender's pending ones, by nonce."""
    hash_ = bytes(signed.hash)
    if chain.find(hash_) is not None or any(bytes(pending.hash) == hash_ for pending in waiting):
        return "already known"
    sender = checksum(bytes(signed.sender))
    nonce, balance = chain.account(sender)
    ahead = {pending.nonce: pending for pending in waiting if pending.nonce >= nonce}
    if signed.nonce < nonce:
        return f"nonce too low: address {sender}, tx: {signed.nonce} state: {nonce}"
    if signed.nonce > nonce + len(ahead):
        return f"nonce too high: address {sender}, tx: {signed.nonce} state: {nonce + len(ahead)}"
    replaced = ahead.pop(signed.nonce, None)
    paid = (*ahead.values(), signed)
    cost = sum(pending.gas * pending.max_fee_per_gas + pending.value for pending in paid)
    if replaced is not None:
        fees = (signed.max_fee_per_gas, replaced.max_fee_per_gas)
        tips = (signed.max_priority_fee_per_gas, replaced.max_priority_fee_per_gas)
        # A replacement pays a tenth more of both.
        if not all(new > old and 10 * new >= 11 * old for new, old in (fees, tips)):
            return "replacement transaction underpriced"
    if balance < cost:
        fact = f"address {sender} have {balance} want {cost}"
        return f"insufficient funds for gas * price + value: {fact}"
    return _misfit(chain.header(), signed, sender)


def _misfit(head: Header, signed: Signed, sender: str) -> str | None:
    fee = next_base_fee(head)
    if signed.max_fee_per_gas < fee:
        return (
            f"max fee per gas less than block base fee: address {sender}, "
            f"maxFeePerGas: {signed.max_fee_per_gas}, baseFee: {fee}"
        )
    if signed.gas < signed.intrinsic_gas:
        return f"intrinsic gas too low: have {signed.gas}, want {signed.intrinsic_gas}"
    if signed.gas > head.gas_limit:
        return f"exceeds block gas limit: {signed.gas} over {head.gas_limit}"
    return None
