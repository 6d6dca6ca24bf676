"""An account of ours on a chain behind a node: signs, sends, and waits for what comes of it."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, TypeVar

from ledger.chain.ports import NotServedError, Receipt, TransactionTimeoutError
from ledger.chain.rpc import fees, wire
from ledger.chain.rpc.account import SendingAccount
from ledger.chain.rpc.outbox import Outbox
from ledger.chain.rpc.sending_node import SendingNode

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.chain.rpc.pending import Pending
    from ledger.chain.rpc.reader import RpcSettings

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
        self._outbox = Outbox(self, account, self._settings, sleep, clock)
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
        pending, pause = self.submit(to, data, gas, value=value), self._first_pause()
        while True:
            try:
                receipt = pending.look()
            except NotServedError:
                receipt = None  # a node that fails is asked again, until the time is over
            if receipt is not None:
                return receipt
            self._sleep(pause)
            pause = self._longer(pause)

    def submit(self, to: str | None, data: bytes, gas: int, *, value: int = 0) -> Pending:
        """Sign and submit an EIP-1559 transaction, and leave it to the caller to look after it.

        Several may be on their way at once. Who does not look for longer than the transaction's
        time leaves it to the node.

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

    def most_cost(self, gas: int) -> int:
        """Return what an account has to own for a transaction, in wei; 0 where gas is over the cap.

        Args:
            gas: its limit.
        """
        market = self.market()
        offer = fees.offered(market.base_fee, market.tip, self._outbox.caps)
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

    def creations(self, sender: str, digest: bytes, from_block: int) -> list[Receipt]:
        """Return the contracts that an account has created, in the chain's order.

        Args:
            sender: the account.
            digest: sha256 of the creation code with its arguments.
            from_block: first block, included.
        """
        self._wait_for(
            f"a transaction of {sender}: not in a block",
            lambda: None if self._has_pending(sender) else True,
        )
        found = []
        for number in range(from_block, self.head().number + 1):
            block = self._ask(wire.members, "eth_getBlockByNumber", hex(number), True)
            for entry in wire.items(block.get("transactions")):
                if wire.members(entry).get("to") is None:
                    sent = wire.transaction(entry)
                    if sent.sender == sender and hashlib.sha256(sent.input).digest() == digest:
                        found.append(self._confirmed(sent.hash))
        return [receipt for receipt in found if receipt.status == 1]

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
