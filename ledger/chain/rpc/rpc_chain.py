"""An account of ours on a chain behind a node: signs, sends, and waits for what comes of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from ledger.chain.ports import NotServedError, Receipt, TransactionTimeoutError
from ledger.chain.rpc import fees, wire
from ledger.chain.rpc.account import SendingAccount
from ledger.chain.rpc.in_flight import UnsignedTransaction
from ledger.chain.rpc.sending_node import SendingNode
from ledger.chain.rpc.transaction_manager import TransactionManager

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.chain.rpc.in_flight import InFlightTransaction
    from ledger.chain.rpc.rpc_reader import RpcSettings

T = TypeVar("T")

_FIRST_PAUSE_SECONDS = 0.005


class RpcChain(SendingNode):
    """A chain behind a node, and an account of ours on it. Safe to share between threads.

    Args:
        url: the node, http or https.
        key: the private key that signs, 32 bytes; it never leaves this process.
        chain_id: the expected id.
        genesis_hash: the expected block 0; None accepts any.
        settings: time-outs, limits and fees.
        sleep: how to wait, in seconds.
        clock: seconds that only go forward.

    Attributes:
        sender: the address that signs.
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
        account = SendingAccount(key)
        self._outbox = TransactionManager(self, account, self._settings, sleep, clock)
        self.sender: str = account.address

    def send(self, to: str | None, data: bytes, gas: int, *, value: int = 0) -> Receipt:
        """Sign and submit an EIP-1559 transaction; wait for its receipt and confirmations.

        Args:
            to: the contract; None creates one.
            data: call data, or the creation code.
            gas: the limit of gas; never estimated.
            value: how many wei go with it.

        Returns:
            The receipt, with status 1.

        Raises:
            TransactionRevertedError: a block holds it, but it reverted.
            TransactionRefusedError: the node does not take it, or another took its nonce.
            TransactionTimeoutError: it is not confirmed in time; it still may be later.
        """
        return self._received(self.submit(to, data, gas, value=value))

    def _received(self, pending: InFlightTransaction) -> Receipt:
        pause = self._first_pause()
        while True:
            try:
                receipt = pending.look()
            except NotServedError:
                receipt = None  # a node that fails is asked again, until the time is over
            if receipt is not None:
                return receipt
            self._sleep(pause)
            pause = self._longer(pause)

    def submit(
        self, to: str | None, data: bytes, gas: int, *, value: int = 0
    ) -> InFlightTransaction:
        """Sign and submit an EIP-1559 transaction, and leave it to the caller to look after it.

        Several may be on their way at once. Who does not look for longer than the transaction's
        time leaves it to the node, until a later one takes its nonce.

        Args:
            to: the contract; None creates one.
            data: call data, or the creation code.
            gas: the limit of gas; never estimated.
            value: how many wei go with it.

        Raises:
            TransactionRefusedError: the node does not take it; nothing was sent.
        """
        return self._outbox.submit(to, data, gas, value)

    def balance(self) -> int:
        """Return what the account owns at the newest block, in wei."""
        return self.balance_of(self.sender)

    def max_cost(self, gas: int) -> int:
        """Return what an account has to own for a transaction, in wei; 0 where gas is over the cap.

        Args:
            gas: its limit.
        """
        market = self.market()
        offer = fees.new_fees(market.base_fee, market.tip, self._outbox.caps)
        return 0 if offer is None else gas * offer.fee

    def _first_pause(self) -> float:
        return min(_FIRST_PAUSE_SECONDS, self._settings.poll_seconds)

    def _longer(self, pause: float) -> float:
        return min(pause * 1.5, self._settings.poll_seconds)

    def _wait_for(self, what: str, look: Callable[[], T | None]) -> T:
        deadline = self._clock() + self._settings.receipt_timeout_seconds
        pause = self._first_pause()
        while (found := look()) is None:
            if self._clock() > deadline:
                raise TransactionTimeoutError(
                    f"{what} within {self._settings.receipt_timeout_seconds:g} s"
                )
            self._sleep(pause)
            pause = self._longer(pause)
        return found

    def _confirmed(self, transaction_hash: bytes) -> Receipt:
        wanted = self._settings.confirmations

        def look() -> Receipt | None:
            receipt = self.receipt(transaction_hash)
            if receipt is None or wanted == 0:
                return receipt
            return receipt if self.head().number - receipt.block_number >= wanted else None

        return self._wait_for(
            f"account {self.sender}: 0x{transaction_hash.hex()}: not confirmed", look
        )

    def next_nonce(self) -> int:
        """Return the number of the account's next transaction; those count that still wait."""
        return self.nonce(self.sender, pending=True)

    def create_contract(
        self, creation: bytes, gas: int, nonce: int, *, again: bool = False
    ) -> Receipt:
        """Create a contract by the transaction with this nonce, or by none; return its receipt.

        Args:
            creation: creation code and arguments.
            gas: the limit of gas; never estimated.
            nonce: of the transaction.
            again: whether what waits with this nonce may be an earlier attempt, to be replaced.

        Raises:
            TransactionRevertedError: it is in a block, but reverted.
            TransactionRefusedError: the node did not take it, or has another with this nonce.
            TransactionTimeoutError: it is not confirmed in time; it still may be later.
        """
        unsigned = UnsignedTransaction(nonce, None, creation, gas)
        return self._received(self._outbox.submit_as(unsigned, again=again))

    def receipt_of(self, sender: str, nonce: int) -> Receipt | None:
        """Return the confirmed receipt of an account's transaction; None while no block holds it.

        Args:
            sender: the account.
            nonce: of the transaction.

        Raises:
            TransactionTimeoutError: a block holds it, but it is not confirmed in time.
        """
        found = super().receipt_of(sender, nonce)
        return None if found is None else self._confirmed(found.transaction_hash)

    def wait_for_pending(self, sender: str) -> None:
        """Return once no transaction of an account is on its way any more.

        Args:
            sender: the account.

        Raises:
            TransactionTimeoutError: one of them does not come into a block.
        """
        self._wait_for(
            f"a transaction of {sender}: not in a block",
            lambda: None if self._has_pending(sender) else True,
        )

    def _has_pending(self, sender: str) -> bool:
        mined = self.nonce(sender, pending=False)
        return self.nonce(sender, pending=True) > mined

    def mine(self, blocks: int) -> None:
        """Let so many blocks pass: made where the node is a development node, else waited for.

        Args:
            blocks: how many, at least 0.
        """
        target = self.head().number + blocks
        for method, parameters, times in (
            ("anvil_mine", [hex(blocks)], 1),
            ("evm_mine", [], blocks),
        ):
            try:
                for _ in range(times if blocks else 0):
                    self._node.ask(method, *parameters)
            except wire.RpcFault:  # each node has its own code for a method that it lacks
                continue
            return
        self._wait_for(
            f"block {target}: not there",
            lambda: True if self.head().number >= target else None,
        )
