"""Transactions that wait for the next block, where blocks come on a clock.

As on any node they are in memory: whoever sent one sends it again after the node was killed. An
account's transactions have nonces without a gap, and of all accounts the first ones go first, so
that nobody keeps others out of a block by sending much.
"""

from __future__ import annotations

import itertools
import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.chain.addresses import checksum
from ledger.chain.ports import ChainLockedError
from ledger.chain.rpc import wire
from ledger.chain.rpc.server.admission import rejection_message

if TYPE_CHECKING:
    from eth.abc import SignedTransactionAPI

    from ledger.chain.embedded.embedded_chain import EmbeddedChain

_log = logging.getLogger(__name__)

MAX_PER_ACCOUNT = 64
MAX_TRANSACTIONS = 1_024


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A transaction with its hash, which is costly, and how many had come before it.

    A replacement has the turn of what it replaces.
    """

    signed: SignedTransactionAPI
    hash: bytes
    turn: int


class TransactionPool:
    """The transactions that wait for a block. Safe to share between threads.

    Args:
        chain: that gets the blocks.
    """

    def __init__(self, chain: EmbeddedChain) -> None:
        self._chain = chain
        self._lock = threading.Lock()
        self._turns = itertools.count()
        # By account, and each account's by nonce, ascending.
        self._waiting: dict[str, dict[int, _Waiting]] = {}

    def add(self, signed: SignedTransactionAPI) -> None:
        """Have a transaction wait.

        Args:
            signed: that can be read, and whose sender is known.

        Raises:
            RpcFault: it cannot go into a block, or as many wait as may; in geth's words.
        """
        sender = checksum(bytes(signed.sender))
        with self._lock:
            own = self._waiting.get(sender, {})
            why = rejection_message(self._chain, signed, [one.signed for one in own.values()])
            replaced = own.get(signed.nonce)
            if why is None and replaced is None:
                why = self._crowded(sender, len(own))
            if why is not None:
                raise wire.RpcFault(wire.SERVER_ERROR, why)
            turn = next(self._turns) if replaced is None else replaced.turn
            waiting = _Waiting(signed, bytes(signed.hash), turn)
            self._waiting.setdefault(sender, {})[signed.nonce] = waiting

    def find(self, transaction_hash: bytes) -> SignedTransactionAPI | None:
        """Return a transaction that waits; None where it does not.

        Args:
            transaction_hash: its hash, 32 bytes.
        """
        with self._lock:
            for one in self._all():
                if one.hash == transaction_hash:
                    return one.signed
        return None

    def next_nonce(self, account: str) -> int:
        """Return the nonce after the last that waits of an account; 0 where none waits.

        Args:
            account: EIP-55.
        """
        with self._lock:
            return max(self._waiting.get(account, ()), default=-1) + 1

    def mine(self) -> None:
        """Make one block of all that wait and fit into it, or an empty one.

        Raises:
            ChainLockedError: somebody else writes to the chain.
            ChainError: the block cannot be written.
        """
        with self._lock:
            in_turn = self._in_turn()
        try:
            refused = self._chain.mine_pending(in_turn)
        except ChainLockedError:
            raise
        except Exception:
            if not in_turn:
                raise
            # One of them is more than the EVM bears. Nobody can tell which, and no sender shall
            # keep blocks from coming: whoever still wants one sends it again.
            _log.exception("no block can be made of %d transactions: dropped", len(in_turn))
            refused = frozenset(bytes(signed.hash) for signed in in_turn)
            self._chain.mine_pending(())
        with self._lock:
            self._forget_mined(refused)

    def _crowded(self, sender: str, own: int) -> str | None:
        """Return why there is no room for one more of an account; make room if that is fair."""
        if own >= MAX_PER_ACCOUNT:
            return f"account limit exceeded: {own} transactions of {sender} wait"
        if sum(map(len, self._waiting.values())) < MAX_TRANSACTIONS:
            return None
        most = max(self._waiting, key=lambda account: len(self._waiting[account]))
        if len(self._waiting[most]) <= own + 1:
            return f"txpool is full: {MAX_TRANSACTIONS} transactions wait"
        self._waiting[most].popitem()
        return None

    def _in_turn(self) -> list[SignedTransactionAPI]:
        """Return each account's first one, then each account's second one, and so on."""
        turns = [
            (place, one.turn, one.signed)
            for own in self._waiting.values()
            for place, one in enumerate(own.values())
        ]
        return [signed for _, _, signed in sorted(turns, key=lambda entry: entry[:2])]

    def _forget_mined(self, refused: frozenset[bytes]) -> None:
        for account in tuple(self._waiting):
            mined, own = self._chain.account(account)[0], self._waiting[account]
            left: dict[int, _Waiting] = {}
            for nonce, one in own.items():
                if one.hash in refused:
                    break  # nor can those after it ever follow
                if nonce >= mined:
                    left[nonce] = one
            self._waiting[account] = left
            if not left:
                del self._waiting[account]

    def _all(self) -> itertools.chain[_Waiting]:
        return itertools.chain.from_iterable(own.values() for own in self._waiting.values())
