"""A chain behind a node, with an account that signs, sends and waits for confirmation."""

from __future__ import annotations

import itertools
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from ledger.chain import ports
from ledger.chain.rpc import wire
from ledger.chain.rpc.node import RpcReader, RpcSettings
from ledger.chain.rpc.sender import (
    InFlightTransaction,
    Rejection,
    RejectionReason,
    SendingAccount,
    UnsignedTransaction,
)
from ledger.io.retry import Backoff, RetryPolicy

T = TypeVar("T")

_FIRST_PAUSE_SECONDS = 0.005
# Repeated refusals of one nonce are not a race; 1.3 s are enough for a lagging node.
_ATTEMPTS_WITH_ONE_NONCE = 9
_OVERTAKEN = {
    RejectionReason.NONCE_USED,
    RejectionReason.NONCE_TOO_HIGH,
    RejectionReason.UNDERPRICED,
}
# A lower bound: the node's refusal shows whether the pending transaction pays more.
_UNKNOWN = wire.Fees(0, 0)
_log = logging.getLogger(__name__)


class RpcChain(RpcReader):
    """A chain behind a node, and an account of ours on it. Safe to share between threads."""

    def __init__(  # noqa: PLR0913 - all but three have a default
        self,
        url: str,
        key: bytes,
        *,
        chain_id: int,
        genesis_hash: bytes | None = None,
        settings: RpcSettings | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            url,
            chain_id=chain_id,
            genesis_hash=genesis_hash,
            settings=settings,
            sleep=sleep,
            clock=clock,
        )
        self.account = SendingAccount(key)
        self.sender: str = self.account.address
        self._lock = threading.Lock()
        self._in_flight: dict[int, InFlightTransaction] = {}
        self._abandoned: dict[int, wire.Fees] = {}  # fees of pending transactions without a caller
        self._confirmed = 0  # all nonces below were confirmed

    def send(self, to: str | None, data: bytes, gas: int, *, value: int = 0) -> ports.Receipt:
        """Send an EIP-1559 transaction and wait for confirmation; see `ChainWriter.send`."""
        return self._received(self.submit(to, data, gas, value=value))

    def create_contract(
        self, creation: bytes, gas: int, nonce: int, *, again: bool = False
    ) -> ports.Receipt:
        unsigned = UnsignedTransaction(nonce, None, creation, gas)
        with self._lock:
            if again:
                self._abandoned.setdefault(nonce, _UNKNOWN)
            attempts = 0
            while isinstance(outcome := self._try(unsigned), Rejection):
                attempts += 1
                is_outbid = again and outcome.why is RejectionReason.UNDERPRICED
                if not is_outbid or attempts >= _ATTEMPTS_WITH_ONE_NONCE:
                    raise ports.TransactionRefusedError(self._explained(outcome))
        return self._received(outcome)

    def _received(self, pending: InFlightTransaction) -> ports.Receipt:
        is_silent = False

        def poll() -> ports.Receipt | None:
            nonlocal is_silent
            try:
                receipt = pending.poll()
            except ports.NotServedError as error:  # until the transaction's own time-out
                if not is_silent:
                    _log.warning(
                        "%s; retries for at most %.0f s more, until the transaction's time-out",
                        error,
                        pending.seconds_left,
                    )
                is_silent = True
                return None
            if is_silent:
                _log.warning("%s: the node answers again", self.node)
            is_silent = False
            return receipt

        receipt = self._polling(math.inf).poll(poll)
        assert receipt is not None, "there is no deadline"
        return receipt

    def submit(
        self, to: str | None, data: bytes, gas: int, *, value: int = 0
    ) -> InFlightTransaction:
        """Send an EIP-1559 transaction with the next nonce, without waiting for it.

        The node has accepted it, or may have. Several may be in flight. The caller polls the result
        until the receipt time-out; then a later transaction may take the nonce.
        """
        # One at a time: the next nonce is known only after the node has accepted the previous one.
        with self._lock:
            backoff = Backoff(_FIRST_PAUSE_SECONDS, longest_seconds=self.settings.poll_seconds)
            attempts, used = Counter[int](), -1
            while True:
                nonce = self._next_nonce(used)
                outcome = self._try(UnsignedTransaction(nonce, to, data, gas, value))
                if isinstance(outcome, InFlightTransaction):
                    return outcome
                attempts[nonce] += 1
                # An attempt fails when another sender with this key was faster.
                is_hopeless = attempts.total() >= 16 or attempts[nonce] >= _ATTEMPTS_WITH_ONE_NONCE
                if is_hopeless or outcome.why not in _OVERTAKEN:
                    raise ports.TransactionRefusedError(self._explained(outcome))
                if outcome.why is RejectionReason.NONCE_USED and nonce in self._abandoned:
                    del self._abandoned[nonce]
                    used = nonce
                # Another process with this key was faster. The node has certainly not accepted our
                # transaction, so another nonce cannot send it twice.
                self.sleep(backoff.pause(attempts.total()))

    def _try(self, unsigned: UnsignedTransaction) -> InFlightTransaction | Rejection:
        nonce, outbid = unsigned.nonce, self._abandoned.get(unsigned.nonce)
        offer, block_number = self._offer(nonce, outbid)
        pending = InFlightTransaction(self, unsigned, offer, block_number)
        refused = pending.send_first()
        # One with too high a nonce may only have to wait for one of ours that is being resent.
        is_early = refused is not None and refused.why is RejectionReason.NONCE_TOO_HIGH
        waits = is_early and any(earlier < nonce for earlier in tuple(self._in_flight))
        if refused is not None and not waits:
            if outbid is not None and refused.why is RejectionReason.UNDERPRICED:
                self._abandoned[nonce] = offer  # it pays more than was known
            return refused
        self._abandoned.pop(nonce, None)
        self._in_flight[nonce] = pending
        return pending

    def _offer(self, nonce: int, outbid: wire.Fees | None) -> tuple[wire.Fees, int]:
        market, caps = self.market(), self.settings.fee_caps
        offer = wire.new_fees(market.base_fee, market.tip, caps)
        if offer is None:
            cost = market.base_fee + min(market.tip, caps.tip)
            raise ports.TransactionRefusedError(
                f"account {self.sender}: gas costs {cost} wei now, over the cap of "
                f"{caps.fee}; nothing was sent"
            )
        if outbid is not None:
            offer = wire.replacement_fees(outbid, offer, caps)
        if offer is None:
            raise ports.TransactionRefusedError(
                f"account {self.sender}: the transaction with nonce {nonce} is still pending, and "
                "the caps leave no room for higher fees; nothing was sent"
            )
        return offer, market.block_number

    def _next_nonce(self, used: int) -> int:
        counted = self.next_nonce()
        for pending in tuple(self._in_flight.values()):
            # A timed-out transaction may have left a gap, which the next one has to fill.
            if pending.is_over:
                self.end(pending, abandoned=True)
        if self._abandoned and (nonce := self._blocking_nonce(counted, used)) is not None:
            return nonce
        # A node that has lost some of ours counts too few; they are resent with their nonces.
        return max([counted, *(nonce + 1 for nonce in tuple(self._in_flight))])

    def _blocking_nonce(self, counted: int, used: int) -> int | None:
        """Return the nonce that blocks the account's later ones; None if ours are all mined."""
        mined = max(self.nonce(self.sender, pending=False), used + 1)
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

    def end(self, pending: InFlightTransaction, *, abandoned: bool) -> None:
        """Remove a transaction, or leave an abandoned one to the node."""
        # Without the lock, whose holder may be waiting for the node.
        if abandoned:
            self._abandoned[pending.nonce] = pending.offer
        else:
            self._confirmed = max(self._confirmed, pending.nonce + 1)
        self._in_flight.pop(pending.nonce, None)

    def lost(self, block_number: int) -> int:
        """Return how many confirmed transactions the chain up to a block lacks; forget these."""
        mined = self.nonce_at(self.sender, block_number)
        confirmed, self._confirmed = self._confirmed, min(self._confirmed, mined)
        return confirmed - self._confirmed

    def _explained(self, refused: Rejection) -> str:
        help_, words = "", refused.words.lower()
        # Messages of geth and others, Nethermind, and Besu.
        poor = ("insufficient funds", "insufficientfunds", "upfront cost")
        if any(text in words for text in poor):
            help_ = f"; it owns {self.balance_of(self.sender)} wei: send it funds"
        elif refused.why in _OVERTAKEN or "underpriced" in words:
            help_ = "; another program may be sending with this account's key: use one at a time"
        return f"account {self.sender}: {refused.words}{help_}"

    def max_cost(self, gas: int) -> int:
        """Return the balance that a transaction needs, in wei; 0 if gas costs more than the cap."""
        market = self.market()
        offer = wire.new_fees(market.base_fee, market.tip, self.settings.fee_caps)
        return 0 if offer is None else gas * offer.fee

    def _polling(self, seconds: float) -> RetryPolicy:
        backoff = Backoff(_FIRST_PAUSE_SECONDS, 1.5, self.settings.poll_seconds)
        return RetryPolicy(backoff, deadline_seconds=seconds, sleep=self.sleep, clock=self.clock)

    def _wait_for(self, what: str, poll: Callable[[], T | None]) -> T:
        seconds = self.settings.receipt_timeout_seconds
        result = self._polling(seconds).poll(poll)
        if result is None:
            raise ports.TransactionTimeoutError(f"{what} within {seconds:g} s")
        return result

    def next_nonce(self) -> int:
        return self.nonce(self.sender, pending=True)

    def receipt_of(self, sender: str, nonce: int) -> ports.Receipt | None:
        found = super().receipt_of(sender, nonce)
        if found is None:
            return None
        hash_ = found.transaction_hash

        def poll() -> ports.Receipt | None:
            receipt = self.receipt(hash_)
            return receipt if receipt is not None and self.is_confirmed(receipt) else None

        return self._wait_for(f"account {self.sender}: 0x{hash_.hex()}: not confirmed", poll)

    def wait_for_pending(self, sender: str) -> None:
        def poll() -> bool | None:
            mined = self.nonce(sender, pending=False)
            return None if self.nonce(sender, pending=True) > mined else True

        self._wait_for(f"a transaction of {sender}: not in a block", poll)

    def mine(self, blocks: int) -> None:
        """Let a number of blocks pass: mined at once by a development node, else waited for."""
        target = self.head().number + blocks
        for method, taken, times in (("anvil_mine", [hex(blocks)], 1), ("evm_mine", [], blocks)):
            try:
                for _ in range(times if blocks else 0):
                    self._node.ask(method, *taken)
            except wire.RpcFault:  # nodes differ in the code for an unknown method
                continue
            return
        self._wait_for(f"block {target}: not there", lambda: self.head().number >= target or None)
