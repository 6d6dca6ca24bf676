"""The transaction manager: an account's in-flight transactions and its next nonce.

Nodes mine an account's transactions in nonce order. A stuck transaction therefore blocks all later
ones. Once its time-out has passed its fees are no longer raised; the next transaction then takes
its nonce and pays more, instead of waiting behind it. One transaction per nonce is mined.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from ledger.chain.ports import TransactionRefusedError
from ledger.chain.rpc import fees
from ledger.chain.rpc.fees import Fees
from ledger.chain.rpc.in_flight import InFlightTransaction, SendingContext, UnsignedTransaction
from ledger.chain.rpc.rejections import Rejection, RejectionReason
from ledger.chain.rpc.rpc_reader import RpcSettings
from ledger.chain.rpc.sending_node import SendingNode
from ledger.io.retry import Backoff

if TYPE_CHECKING:
    from ledger.chain.rpc.account import SendingAccount

# An attempt fails when another sender with this key was faster.
_NONCE_ATTEMPTS = 16
# Repeated refusals of one nonce are not a race; 1.3 s are enough for a lagging node.
_ATTEMPTS_WITH_ONE_NONCE = 9
_FIRST_PAUSE_SECONDS = 0.005
_OVERTAKEN = {
    RejectionReason.NONCE_USED,
    RejectionReason.NONCE_TOO_HIGH,
    RejectionReason.UNDERPRICED,
}
# A lower bound: the node's refusal shows whether the pending transaction pays more.
_UNKNOWN = Fees(0, 0)
# Messages of geth and others, Nethermind, and Besu.
_INSUFFICIENT_FUNDS = ("insufficient funds", "insufficientfunds", "upfront cost")


class TransactionManager:
    """The transactions of one account. Safe to share between threads.

    Args:
        sleep: waits a number of seconds.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        node: SendingNode,
        account: SendingAccount,
        settings: RpcSettings,
        sleep: Callable[[float], None],
        clock: Callable[[], float],
    ) -> None:
        self.caps = settings.fee_caps
        self.sender = account.address
        self._context = SendingContext(node, account, settings, clock, self._lost)
        self._node = node
        self._settings = settings
        self._sleep = sleep
        self._lock = threading.Lock()
        self._in_flight: dict[int, InFlightTransaction] = {}
        self._abandoned: dict[int, Fees] = {}  # fees of pending transactions without a caller
        self._confirmed = 0  # all nonces below were confirmed

    def submit(self, to: str | None, data: bytes, gas: int, value: int) -> InFlightTransaction:
        """Send a transaction with the next nonce.

        Args:
            to: the recipient; None creates a contract.
            gas: the gas limit; never estimated.
            value: wei to transfer.

        Returns:
            A transaction that the node has accepted, or may have accepted.
        """
        # One at a time: the next nonce is known only after the node has accepted the previous one.
        with self._lock:
            backoff = Backoff(_FIRST_PAUSE_SECONDS, longest_seconds=self._settings.poll_seconds)
            attempts, used = Counter[int](), -1
            while True:
                nonce, outcome = self._try(
                    UnsignedTransaction(self._next_nonce(used), to, data, gas, value)
                )
                if isinstance(outcome, InFlightTransaction):
                    return outcome
                attempts[nonce] += 1
                is_hopeless = (
                    attempts.total() >= _NONCE_ATTEMPTS
                    or attempts[nonce] >= _ATTEMPTS_WITH_ONE_NONCE
                )
                if is_hopeless or outcome.why not in _OVERTAKEN:
                    raise TransactionRefusedError(self._explained(outcome))
                if outcome.why is RejectionReason.NONCE_USED and nonce in self._abandoned:
                    del self._abandoned[nonce]
                    used = nonce
                # Another process with this key was faster. The node has certainly not accepted our
                # transaction, so another nonce cannot send it twice.
                self._sleep(backoff.pause(attempts.total()))

    def submit_as(self, unsigned: UnsignedTransaction, *, again: bool) -> InFlightTransaction:
        """Send a transaction with the given nonce and no other.

        Args:
            again: whether a pending transaction with its nonce may be replaced.
        """
        with self._lock:
            if again:
                self._abandoned.setdefault(unsigned.nonce, _UNKNOWN)
            attempts = 0
            while True:
                _, outcome = self._try(unsigned)
                if isinstance(outcome, InFlightTransaction):
                    return outcome
                attempts += 1
                is_outbid = again and outcome.why is RejectionReason.UNDERPRICED
                if not is_outbid or attempts >= _ATTEMPTS_WITH_ONE_NONCE:
                    raise TransactionRefusedError(self._explained(outcome))

    def _try(self, unsigned: UnsignedTransaction) -> tuple[int, InFlightTransaction | Rejection]:
        nonce, outbid = unsigned.nonce, self._abandoned.get(unsigned.nonce)
        offer, block_number = self._offer(nonce, outbid)
        pending = InFlightTransaction(self._context, unsigned, offer, block_number, self._end)
        refused = pending.send_first()
        if refused is not None and not self._waits_for_ours(refused, nonce):
            if outbid is not None and refused.why is RejectionReason.UNDERPRICED:
                self._abandoned[nonce] = offer  # it pays more than was known
            return nonce, refused
        self._abandoned.pop(nonce, None)
        self._in_flight[nonce] = pending
        return nonce, pending

    def _offer(self, nonce: int, outbid: Fees | None) -> tuple[Fees, int]:
        market = self._node.market()
        offer = fees.new_fees(market.base_fee, market.tip, self.caps)
        if offer is None:
            cost = market.base_fee + min(market.tip, self.caps.tip)
            raise TransactionRefusedError(
                f"account {self.sender}: gas costs {cost} wei now, over the cap of "
                f"{self.caps.fee}; nothing was sent"
            )
        if outbid is not None:
            offer = fees.replacement_fees(outbid, offer, self.caps)
        if offer is None:
            raise TransactionRefusedError(
                f"account {self.sender}: the transaction with nonce {nonce} is still pending, and "
                "the caps leave no room for higher fees; nothing was sent"
            )
        return offer, market.block_number

    def _next_nonce(self, used: int) -> int:
        counted = self._node.nonce(self.sender, pending=True)
        for pending in tuple(self._in_flight.values()):
            # A timed-out transaction may have left a gap, which the next one has to fill.
            if pending.is_over:
                self._end(pending, abandoned=True)
        if self._abandoned and (nonce := self._blocking_nonce(counted, used)) is not None:
            return nonce
        # A node that has lost some of ours counts too few; they are resent with their nonces.
        return max([counted, *(nonce + 1 for nonce in tuple(self._in_flight))])

    def _blocking_nonce(self, counted: int, used: int) -> int | None:
        """Return the nonce that blocks the account's later ones; None if ours are all mined."""
        mined = max(self._node.nonce(self.sender, pending=False), used + 1)
        for nonce in tuple(self._abandoned):
            if nonce < mined:
                del self._abandoned[nonce]
        if not self._abandoned:
            return None
        waiting = set(self._in_flight)
        nonce = next(number for number in itertools.count(mined) if number not in waiting)
        if nonce >= counted:
            self._abandoned.pop(nonce, None)  # dropped by the node
        elif nonce not in self._abandoned:
            self._abandoned[nonce] = _UNKNOWN  # left by a killed process
        return nonce

    def _waits_for_ours(self, refused: Rejection, nonce: int) -> bool:
        """Return whether a transaction only has to wait for one of ours that is being resent."""
        is_early = refused.why is RejectionReason.NONCE_TOO_HIGH
        return is_early and any(earlier < nonce for earlier in tuple(self._in_flight))

    def _end(self, pending: InFlightTransaction, abandoned: bool) -> None:
        """Remove a transaction; an abandoned one is left to the node.

        Takes no lock, whose holder may be waiting for the node.
        """
        if abandoned:
            self._abandoned[pending.nonce] = pending.offer
        else:
            self._confirmed = max(self._confirmed, pending.nonce + 1)
        self._in_flight.pop(pending.nonce, None)

    def _lost(self, block_number: int) -> int:
        """Return how many confirmed transactions the chain up to a block lacks; forget these."""
        mined = self._node.nonce_at(self.sender, block_number)
        confirmed, self._confirmed = self._confirmed, min(self._confirmed, mined)
        return confirmed - self._confirmed

    def _explained(self, refused: Rejection) -> str:
        """Return a node's message with the account it concerns, and a remedy."""
        words = refused.words
        if any(text in words.lower() for text in _INSUFFICIENT_FUNDS):
            help_ = f"; it owns {self._node.balance_of(self.sender)} wei: send it funds"
        elif refused.why in _OVERTAKEN or "underpriced" in words.lower():
            help_ = "; another program may be sending with this account's key: use one at a time"
        else:
            help_ = ""
        return f"account {self.sender}: {words}{help_}"
