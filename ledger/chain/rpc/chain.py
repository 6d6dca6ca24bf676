"""An account of ours on a chain behind a node: signs, sends, and waits for what comes of it."""

from __future__ import annotations

import hashlib
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
                if not _is_overtaken(str(error)):
                    raise
        return self._submit(to, data, gas)

    def _submit(self, to: str | None, data: bytes, gas: int) -> bytes:
        fee, tip = self._fees()
        nonce = self._ask(wire.quantity, "eth_getTransactionCount", self.sender, "pending")
        fields: dict[str, Any] = {
            "type": 2,
            "chainId": self.chain_id,
            "nonce": nonce,
            "maxFeePerGas": fee,
            "maxPriorityFeePerGas": tip,
            "gas": gas,
            "to": to if to is not None else b"",
            "value": 0,
            "data": data,
        }
        signed = self._account.sign_transaction(fields)
        try:
            raw = wire.to_hex(bytes(signed.raw_transaction))
            answer = self._ask(_read_hash, "eth_sendRawTransaction", raw)
        except wire.RpcFault as fault:
            raise TransactionRefusedError(self._refused(str(fault))) from fault
        verify_asked(answer, bytes(signed.hash))
        return bytes(signed.hash)

    def balance(self) -> int:
        """Return what the account owns at the newest block, in wei."""
        return self.balance_of(self.sender)

    def _refused(self, words: str) -> str:
        """Return the node's words with the account that they are about, and what helps."""
        said = words.lower()
        if "insufficient funds" in said:
            help_ = f"; it owns {self.balance()} wei: send it funds"
        elif _is_overtaken(words) or "underpriced" in said:
            help_ = "; another program may be sending with this account's key: use one at a time"
        else:
            help_ = ""
        return f"account {self.sender}: {words}{help_}"

    def _fees(self) -> tuple[int, int]:
        base = self._ask(_base_fee, "eth_getBlockByNumber", "latest", False)
        try:
            tip = self._ask(wire.quantity, "eth_maxPriorityFeePerGas")
        except wire.RpcFault:
            tip = GWEI
        tip = min(tip, self._settings.most_tip_per_gas_wei)
        most = self._settings.most_fee_per_gas_wei
        if base + tip > most:
            raise TransactionRefusedError(
                f"account {self.sender}: gas costs {base + tip} wei now, over the cap of {most}; "
                "nothing was sent"
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

        return self._wait_for(
            f"account {self.sender}: 0x{transaction_hash.hex()}: not confirmed", confirmed
        )

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
            block = wire.members(self._node.ask("eth_getBlockByNumber", hex(number), True))
            for entry in wire.items(block.get("transactions")):
                if wire.members(entry).get("to") is None:
                    sent = wire.transaction(entry)
                    if sent.sender == sender and hashlib.sha256(sent.input).digest() == digest:
                        found.append(self._wait(sent.hash))
        return [receipt for receipt in found if receipt.status == 1]

    def _has_pending(self, sender: str) -> bool:
        mined, sent = (
            wire.quantity(self._node.ask("eth_getTransactionCount", sender, tag))
            for tag in ("latest", "pending")
        )
        return sent > mined

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


def _is_overtaken(words: str) -> bool:
    # An equal transaction of another sender with this key has one hash with ours.
    signs = ("nonce", "already known", "already imported")
    return any(sign in words.lower() for sign in signs)


def _base_fee(block: object) -> int:
    return wire.quantity(wire.members(block).get("baseFeePerGas"))


def _read_hash(answer: object) -> bytes:
    return wire.data(answer, 32)
