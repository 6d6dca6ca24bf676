"""An account of ours on a chain behind a node: signs, sends, and waits for what comes of it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

from eth_account import Account

from ledger.chain.ports import (
    Receipt,
    TransactionRefusedError,
    TransactionRevertedError,
    TransactionTimeoutError,
)
from ledger.chain.rpc import wire
from ledger.chain.rpc.reader import GWEI, RpcReader, RpcSettings, verify_asked

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

# Each lost attempt means that another sender with this key has got one through.
_NONCE_ATTEMPTS = 16


class RpcChain(RpcReader):
    """A chain behind a node, and an account of ours on it. Safe to share between threads.

    Args:
        url: the node, http or https.
        key: the private key that signs, 32 bytes; it never leaves this process.
        chain_id: the expected id.
        genesis_hash: the expected block 0; None accepts any.
        settings: time-outs, limits and fees.
        sleep: how to wait, in seconds.

    Attributes:
        sender: the address that signs.
    """

    def __init__(
        self,
        url: str,
        key: bytes,
        *,
        chain_id: int,
        genesis_hash: bytes | None = None,
        settings: RpcSettings | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(url, chain_id=chain_id, genesis_hash=genesis_hash, settings=settings)
        self._account = Account.from_key(key)
        self._sleep = sleep
        self._lock = threading.Lock()
        self.sender: str = self._account.address

    def send(self, to: str | None, data: bytes, gas: int) -> Receipt:
        """Sign and submit an EIP-1559 transaction; wait for its receipt and confirmations.

        Args:
            to: the contract; None creates one.
            data: call data, or the creation code.
            gas: the limit of gas; never estimated.

        Returns:
            The receipt, with status 1.

        Raises:
            TransactionRevertedError: a block holds it, but it reverted.
        """
        request: dict[str, str] = {"from": self.sender, "data": wire.to_hex(data)}
        if to is not None:
            request["to"] = to
        # One at a time: the next nonce is known only once the node has taken the previous one.
        with self._lock:
            transaction_hash = self._submit_with_next_nonce(to, data, gas)
        receipt = self._wait(transaction_hash)
        if receipt.status != 1:
            reverted = self._replay({**request, "gas": hex(gas)}, receipt.block_number)
            raise TransactionRevertedError(reverted, transaction_hash)
        return receipt

    def _submit_with_next_nonce(self, to: str | None, data: bytes, gas: int) -> bytes:
        for _ in range(_NONCE_ATTEMPTS - 1):
            try:
                return self._submit(to, data, gas)
            except TransactionRefusedError as error:
                # Another process that signs with this key came between question and answer.
                if "nonce" not in str(error).lower():
                    raise
        return self._submit(to, data, gas)

    def _submit(self, to: str | None, data: bytes, gas: int) -> bytes:
        fee, tip = self._fees()
        nonce = self._node.ask("eth_getTransactionCount", self.sender, "pending")
        fields: dict[str, Any] = {
            "type": 2,
            "chainId": self.chain_id,
            "nonce": wire.quantity(nonce),
            "maxFeePerGas": fee,
            "maxPriorityFeePerGas": tip,
            "gas": gas,
            "to": to if to is not None else b"",
            "value": 0,
            "data": data,
        }
        signed = self._account.sign_transaction(fields)
        try:
            answer = self._node.ask(
                "eth_sendRawTransaction", wire.to_hex(bytes(signed.raw_transaction))
            )
        except wire.RpcFault as fault:
            raise TransactionRefusedError(str(fault)) from fault
        verify_asked(wire.data(answer, 32), bytes(signed.hash))
        return bytes(signed.hash)

    def _fees(self) -> tuple[int, int]:
        base = wire.quantity(wire.members(self._block_json("latest")).get("baseFeePerGas"))
        try:
            tip = wire.quantity(self._node.ask("eth_maxPriorityFeePerGas"))
        except wire.RpcFault:
            tip = GWEI
        tip = min(tip, self._settings.most_tip_per_gas_wei)
        most = self._settings.most_fee_per_gas_wei
        if base + tip > most:
            raise TransactionRefusedError(
                f"gas costs {base + tip} wei now, over the cap of {most}; nothing was sent"
            )
        # Twice the base fee stays valid for six full blocks in a row.
        return min(2 * base + tip, most), tip

    def _wait(self, transaction_hash: bytes) -> Receipt:
        wanted = self._settings.confirmations

        def confirmed() -> Receipt | None:
            # Asked for again on every turn: a reorganisation may have moved it.
            receipt = self.receipt(transaction_hash)
            if receipt is None or wanted == 0:
                return receipt
            return receipt if self.head().number - receipt.block_number >= wanted else None

        return self._wait_for(f"0x{transaction_hash.hex()}: not confirmed", confirmed)

    def _wait_for(self, what: str, look: Callable[[], T | None]) -> T:
        deadline = time.monotonic() + self._settings.receipt_timeout_seconds
        pause = min(0.005, self._settings.poll_seconds)
        while (found := look()) is None:
            if time.monotonic() > deadline:
                raise TransactionTimeoutError(
                    f"{what} within {self._settings.receipt_timeout_seconds:g} s"
                )
            self._sleep(pause)
            pause = min(pause * 1.5, self._settings.poll_seconds)
        return found

    def _replay(self, request: dict[str, str], block_number: int) -> bytes:
        # The state just before the transaction is the parent's, unless its block held others.
        for number in (block_number - 1, block_number):
            try:
                self._call(request, number)
            except TransactionRevertedError as error:
                return error.data
            except wire.RpcFault:  # out of gas, or the node has forgotten the state
                continue
        return b""

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
