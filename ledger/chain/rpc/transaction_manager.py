"""The transactions of one account that are on their way, and the nonce of the next.

Nodes take an account's transactions in the order of their nonces. So one that is passed over stops
all that come after it, and where its time is over, nobody raises its offer any more: the next
transaction takes its nonce and offers more, instead of waiting behind it. Of all that are sent for
one nonce, a block holds one.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from typing import TYPE_CHECKING

from ledger.chain.ports import TransactionRefusedError
from ledger.chain.rpc import fees
from ledger.chain.rpc.fees import Fees
from ledger.chain.rpc.in_flight import InFlightTransaction, UnsignedTransaction
from ledger.chain.rpc.rejections import Rejection, RejectionReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.chain.rpc.account import RawTransaction, SendingAccount
    from ledger.chain.rpc.rpc_reader import RpcSettings
    from ledger.chain.rpc.sending_node import SendingNode

# Each lost attempt means that another sender with this key has got one through.
_NONCE_ATTEMPTS = 16
# A node that keeps counting what it then refuses is no race: 1.3 s are enough for one that lags.
_ATTEMPTS_WITH_ONE_NONCE = 9
_FIRST_PAUSE_SECONDS = 0.005
_OVERTAKEN = {
    RejectionReason.NONCE_USED,
    RejectionReason.NONCE_TOO_HIGH,
    RejectionReason.UNDERPRICED,
}
# The least that anything offers: the node's refusal tells whether it was more.
_UNKNOWN = Fees(0, 0)
# In the words of geth and others, Nethermind, and Besu.
_TOO_POOR = ("insufficient funds", "insufficientfunds", "upfront cost")


class TransactionManager:
    """What an account sends. Safe to share between threads.

    Args:
        node: that takes it.
        account: that signs.
        settings: time-outs and fees.
        sleep: how to wait, in seconds.
        clock: seconds that only go forward.

    Attributes:
        sender: the account's address.
    """

    def __init__(
        self,
        node: SendingNode,
        account: SendingAccount,
        settings: RpcSettings,
        sleep: Callable[[float], None],
        clock: Callable[[], float],
    ) -> None:
        self.node = node
        self.settings = settings
        self.clock = clock
        self.caps = settings.fee_caps
        self.sender = account.address
        self._account = account
        self._sleep = sleep
        self._lock = threading.Lock()
        self._waiting: dict[int, InFlightTransaction] = {}
        self._given_up: dict[int, Fees] = {}  # what waits for nonces that nobody looks after

    def submit(self, to: str | None, data: bytes, gas: int, value: int) -> InFlightTransaction:
        """Return a transaction that the node has taken, or may have taken.

        Args:
            to: the account that it calls; None creates a contract.
            data: call data, or the creation code.
            gas: the limit of gas; never estimated.
            value: how many wei go with it.

        Raises:
            TransactionRefusedError: the node has not taken it, and never will.
        """
        # One at a time: the next nonce is known only once the node has taken the previous one.
        with self._lock:
            pause, tried, used = _FIRST_PAUSE_SECONDS, Counter[int](), -1
            while True:
                nonce, taken = self._try(
                    UnsignedTransaction(self._next_nonce(used), to, data, gas, value)
                )
                if isinstance(taken, InFlightTransaction):
                    return taken
                tried[nonce] += 1
                is_hopeless = (
                    tried.total() >= _NONCE_ATTEMPTS or tried[nonce] >= _ATTEMPTS_WITH_ONE_NONCE
                )
                if is_hopeless or taken.why not in _OVERTAKEN:
                    raise TransactionRefusedError(self._explained(taken))
                if taken.why is RejectionReason.NONCE_USED and nonce in self._given_up:
                    del self._given_up[nonce]
                    used = nonce
                # Another process that signs with this key came between question and answer. The
                # node has certainly not taken ours, so that another nonce makes no second one.
                self._sleep(pause)
                pause = min(2 * pause, self.settings.poll_seconds)

    def submit_as(self, unsigned: UnsignedTransaction, *, again: bool) -> InFlightTransaction:
        """Return a transaction with a nonce that is given, and with no other.

        Args:
            unsigned: what it does.
            again: whether what waits with its nonce is to be replaced.

        Raises:
            TransactionRefusedError: the node has not taken it, and never will.
        """
        with self._lock:
            if again:
                self._given_up.setdefault(unsigned.nonce, _UNKNOWN)
            tried = 0
            while True:
                _, taken = self._try(unsigned)
                if isinstance(taken, InFlightTransaction):
                    return taken
                tried += 1
                is_outbid = again and taken.why is RejectionReason.UNDERPRICED
                if not is_outbid or tried >= _ATTEMPTS_WITH_ONE_NONCE:
                    raise TransactionRefusedError(self._explained(taken))

    def _try(self, unsigned: UnsignedTransaction) -> tuple[int, InFlightTransaction | Rejection]:
        nonce, beaten = unsigned.nonce, self._given_up.get(unsigned.nonce)
        offer, block_number = self._offer(nonce, beaten)
        pending = InFlightTransaction(self, unsigned, offer, block_number)
        refused = pending.send_first()
        if refused is not None and not self._comes_later(refused, nonce):
            if beaten is not None and refused.why is RejectionReason.UNDERPRICED:
                self._given_up[nonce] = offer  # it offers more than was known
            return nonce, refused
        self._given_up.pop(nonce, None)
        self._waiting[nonce] = pending
        return nonce, pending

    def _offer(self, nonce: int, beaten: Fees | None) -> tuple[Fees, int]:
        market = self.node.market()
        offer = fees.new_fees(market.base_fee, market.tip, self.caps)
        if offer is None:
            cost = market.base_fee + min(market.tip, self.caps.tip)
            raise TransactionRefusedError(
                f"account {self.sender}: gas costs {cost} wei now, over the cap of "
                f"{self.caps.fee}; nothing was sent"
            )
        if beaten is not None:
            offer = fees.replacement_fees(beaten, offer, self.caps)
        if offer is None:
            raise TransactionRefusedError(
                f"account {self.sender}: what was sent with nonce {nonce} still waits, and the "
                "caps leave no more to offer; nothing was sent"
            )
        return offer, market.block_number

    def _next_nonce(self, used: int) -> int:
        counted = self.node.nonce(self.sender, pending=True)
        for pending in tuple(self._waiting.values()):
            # What nobody sends again may have left a gap, which the next one has to fill.
            if pending.is_over:
                self.give_up(pending)
        if self._given_up and (nonce := self._stopped_at(counted, used)) is not None:
            return nonce
        # A node that has lost some of ours counts too few: they are sent again with their nonces.
        return max([counted, *(nonce + 1 for nonce in tuple(self._waiting))])

    def _stopped_at(self, counted: int, used: int) -> int | None:
        """Return the nonce that all others of the account wait for, None if ours are in blocks."""
        mined = max(self.node.nonce(self.sender, pending=False), used + 1)
        for nonce in tuple(self._given_up):
            if nonce < mined:
                del self._given_up[nonce]
        if not self._given_up:
            return None
        waiting = set(self._waiting)
        nonce = next(one for one in itertools.count(mined) if one not in waiting)
        if nonce >= counted:
            self._given_up.pop(nonce, None)  # the node has dropped it
        elif nonce not in self._given_up:
            self._given_up[nonce] = _UNKNOWN  # of a process that was killed
        return nonce

    def _comes_later(self, refused: Rejection, nonce: int) -> bool:
        """Say whether a transaction only has to wait for one of ours that is sent again."""
        is_early = refused.why is RejectionReason.NONCE_TOO_HIGH
        return is_early and any(one < nonce for one in tuple(self._waiting))

    def sign(self, unsigned: UnsignedTransaction, offer: Fees) -> RawTransaction:
        """Return a transaction as the node takes it.

        Args:
            unsigned: what it does.
            offer: what it pays.
        """
        return self._account.sign(unsigned.fields(self.node.chain_id, offer))

    def forget(self, pending: InFlightTransaction) -> None:
        """Count a transaction as on its way no more; whose lock it is, is not waited for."""
        self._waiting.pop(pending.nonce, None)

    def give_up(self, pending: InFlightTransaction) -> None:
        """Leave a transaction to the node, until the next one takes its nonce."""
        self._given_up[pending.nonce] = pending.offer
        self.forget(pending)

    def _explained(self, refused: Rejection) -> str:
        """Return the node's words with the account that they are about, and what helps."""
        words = refused.words
        if any(sign in words.lower() for sign in _TOO_POOR):
            help_ = f"; it owns {self.node.balance_of(self.sender)} wei: send it funds"
        elif refused.why in _OVERTAKEN or "underpriced" in words.lower():
            help_ = "; another program may be sending with this account's key: use one at a time"
        else:
            help_ = ""
        return f"account {self.sender}: {words}{help_}"
