"""A chain behind a node, with an account that signs, sends and waits for confirmation."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import TypeVar

from ledger.chain.ports import NotServedError, Receipt, TransactionTimeoutError
from ledger.chain.rpc import wire
from ledger.chain.rpc.node import RpcReader, RpcSettings
from ledger.chain.rpc.sender import (
    InFlightTransaction,
    SendingAccount,
    TransactionManager,
    UnsignedTransaction,
)
from ledger.io.retry import Backoff, RetryPolicy

T = TypeVar("T")

_FIRST_PAUSE_SECONDS = 0.005
_log = logging.getLogger(__name__)


class RpcChain(RpcReader):
    """A chain behind a node, and an account of ours on it. Safe to share between threads.

    Args:
        key: the private key, 32 bytes; it never leaves this process.
        genesis_hash: the expected block 0; None accepts any.
        sleep: waits a number of seconds.
        clock: monotonic seconds.
    """

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
        self._manager = TransactionManager(self, SendingAccount(key))
        self.sender: str = self._manager.sender

    def send(self, to: str | None, data: bytes, gas: int, *, value: int = 0) -> Receipt:
        """Send an EIP-1559 transaction and wait for confirmation; see `ChainWriter.send`."""
        return self._received(self.submit(to, data, gas, value=value))

    def _received(self, pending: InFlightTransaction) -> Receipt:
        is_silent = False

        def poll() -> Receipt | None:
            nonlocal is_silent
            try:
                receipt = pending.poll()
            except NotServedError as error:  # until the transaction's own time-out
                if not is_silent:
                    _log.warning(
                        "%s; retries for at most %.0f s more, until the transaction's time-out",
                        error,
                        pending.seconds_left,
                    )
                is_silent = True
                return None
            if is_silent:
                _log.warning("%s: the node answers again", self._node.shown_url)
            is_silent = False
            return receipt

        receipt = self._polling(math.inf).poll(poll)
        assert receipt is not None, "there is no deadline"
        return receipt

    def submit(
        self, to: str | None, data: bytes, gas: int, *, value: int = 0
    ) -> InFlightTransaction:
        """Send an EIP-1559 transaction without waiting for it.

        Several may be in flight. The caller polls the result; after the receipt time-out it
        stops, and a later transaction may take the nonce.

        Args:
            to: the contract; None creates one.
        """
        return self._manager.submit(to, data, gas, value)

    def balance(self) -> int:
        """Return the account's balance at the newest block, in wei."""
        return self.balance_of(self.sender)

    def max_cost(self, gas: int) -> int:
        """Return the balance that a transaction needs, in wei; 0 if gas costs more than the cap."""
        market = self.market()
        offer = wire.new_fees(market.base_fee, market.tip, self._manager.caps)
        return 0 if offer is None else gas * offer.fee

    def _polling(self, seconds: float) -> RetryPolicy:
        backoff = Backoff(_FIRST_PAUSE_SECONDS, 1.5, self.settings.poll_seconds)
        return RetryPolicy(backoff, deadline_seconds=seconds, sleep=self.sleep, clock=self.clock)

    def _wait_for(self, what: str, poll: Callable[[], T | None]) -> T:
        seconds = self.settings.receipt_timeout_seconds
        result = self._polling(seconds).poll(poll)
        if result is None:
            raise TransactionTimeoutError(f"{what} within {seconds:g} s")
        return result

    def _confirmed(self, transaction_hash: bytes) -> Receipt:
        def poll() -> Receipt | None:
            receipt = self.receipt(transaction_hash)
            return receipt if receipt is not None and self.is_confirmed(receipt) else None

        return self._wait_for(
            f"account {self.sender}: 0x{transaction_hash.hex()}: not confirmed", poll
        )

    def next_nonce(self) -> int:
        return self.nonce(self.sender, pending=True)

    def create_contract(
        self, creation: bytes, gas: int, nonce: int, *, again: bool = False
    ) -> Receipt:
        unsigned = UnsignedTransaction(nonce, None, creation, gas)
        return self._received(self._manager.submit_as(unsigned, again=again))

    def receipt_of(self, sender: str, nonce: int) -> Receipt | None:
        receipt = super().receipt_of(sender, nonce)
        return None if receipt is None else self._confirmed(receipt.transaction_hash)

    def wait_for_pending(self, sender: str) -> None:
        self._wait_for(
            f"a transaction of {sender}: not in a block",
            lambda: None if self._has_pending(sender) else True,
        )

    def _has_pending(self, sender: str) -> bool:
        mined = self.nonce(sender, pending=False)
        return self.nonce(sender, pending=True) > mined

    def mine(self, blocks: int) -> None:
        """Let a number of blocks pass: mined at once by a development node, else waited for."""
        target = self.head().number + blocks
        for method, parameters, times in (
            ("anvil_mine", [hex(blocks)], 1),
            ("evm_mine", [], blocks),
        ):
            try:
                for _ in range(times if blocks else 0):
                    self._node.ask(method, *parameters)
            except wire.RpcFault:  # nodes differ in the code for an unknown method
                continue
            return
        self._wait_for(
            f"block {target}: not there",
            lambda: True if self.head().number >= target else None,
        )
