"""Node requests that only senders of transactions make."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ledger.chain.ports import NotServedError, Receipt, TransactionRevertedError
from ledger.chain.rpc import wire
from ledger.chain.rpc.rpc_reader import GWEI, RpcReader, require_same_hash


@dataclass(frozen=True, slots=True)
class GasMarket:
    """Current gas prices, in wei per gas."""

    block_number: int
    base_fee: int
    tip: int


class SendingNode(RpcReader):
    """A node that accepts signed transactions. Safe to share between threads."""

    def market(self) -> GasMarket:
        """Return current gas prices."""
        number, base = self._ask(_fee_of_block, "eth_getBlockByNumber", "latest", False)
        try:
            tip = self._ask(wire.quantity, "eth_maxPriorityFeePerGas")
        except wire.RpcFault:
            tip = GWEI
        return GasMarket(number, base, tip)

    def client_version(self) -> str:
        """Return the node's name and version."""
        return self._ask(str, "web3_clientVersion")

    def nonce(self, account: str, *, pending: bool) -> int:
        """Return an account's number of transactions, mined only or with pending ones."""
        tag = "pending" if pending else "latest"
        return self._ask(wire.quantity, "eth_getTransactionCount", account, tag)

    def nonce_at(self, account: str, block_number: int) -> int:
        """Return an account's number of transactions mined up to a block."""
        tag = hex(block_number)
        return self._ask(wire.quantity, "eth_getTransactionCount", account, tag)

    def receipt_of(self, sender: str, nonce: int) -> Receipt | None:
        """Return the receipt of an account's transaction; None until it is mined.

        Blocks are requested by number: a lagging node behind the same URL then fails, instead of
        answering as if the transaction did not exist.
        """
        newest = self.head().number
        if self.nonce_at(sender, newest) <= nonce:
            return None
        for number in reversed(blocks_of(nonce, newest, functools.partial(self.nonce_at, sender))):
            transaction_hash = self._ask(
                _sent_by(sender, nonce), "eth_getBlockByNumber", hex(number), True
            )
            if (
                transaction_hash is not None
                and (receipt := self.receipt(transaction_hash)) is not None
            ):
                return receipt
        raise NotServedError(
            f"{self._node.shown_url}: the node has no mined transaction of "
            f"{sender} with nonce {nonce}, although it is mined"
        )

    def post(self, raw: bytes) -> bytes:
        """Send the node a signed transaction once; return the hash under which it was accepted.

        There is no retry after an unclear answer: "already known" would then be ambiguous.
        """
        return wire.data(self._node.ask("eth_sendRawTransaction", wire.to_hex(raw)), 32)

    def has(self, transaction_hash: bytes) -> bool:
        """Return whether the node has a transaction, mined or pending."""

        def read(answer: object) -> bool:
            if answer is not None:
                require_same_hash(wire.data(wire.members(answer).get("hash"), 32), transaction_hash)
            return answer is not None

        return self._ask(read, "eth_getTransactionByHash", wire.to_hex(transaction_hash))

    def revert_data(self, request: Mapping[str, str], block_number: int) -> bytes:
        """Return a reverted transaction's reason data; empty if it cannot be found."""
        # The parent's state is the one before the transaction, unless its block has others.
        for number in (block_number - 1, block_number):
            try:
                self._call(dict(request), number)
            except TransactionRevertedError as error:
                return error.data
            except wire.RpcFault:  # out of gas, or a pruned state
                continue
        return b""

    def gas_of(self, request: Mapping[str, str]) -> int:
        """Return the node's gas estimate of a transaction now."""
        try:
            return self._ask(wire.quantity, "eth_estimateGas", dict(request))
        except wire.RpcFault as fault:
            reverted = wire.revert_data(fault)
            if reverted is None:
                raise
            raise TransactionRevertedError(reverted) from fault


def blocks_of(nonce: int, newest: int, count: Callable[[int], int]) -> range:
    """Return the candidate blocks of a transaction: one, unless the node has pruned old states.

    A binary search from the newest block, as recent transactions are the usual case.

    Args:
        newest: number of a block after which the transaction is mined.
        count: returns the account's number of transactions mined up to a block.
    """
    before, after, step = -1, newest, 1
    try:
        while after - before > 1:
            probe = max(0, after - step) if before < 0 else (before + after) // 2
            if count(probe) > nonce:
                after, step = probe, 2 * step
            else:
                before = probe
    except wire.RpcFault:  # a pruned state: the blocks have to be searched
        pass
    return range(before + 1, after + 1)


def _sent_by(sender: str, nonce: int) -> Callable[[object], bytes | None]:
    """Return a reader that finds the hash of an account's transaction in a block."""

    def read(block: object) -> bytes | None:
        for entry in wire.items(wire.members(block).get("transactions")):
            entry_fields = wire.members(entry)
            is_same = wire.quantity(entry_fields.get("nonce")) == nonce
            if is_same and wire.address(entry_fields.get("from")) == sender:
                return wire.data(entry_fields.get("hash"), 32)
        return None

    return read


def _fee_of_block(block: object) -> tuple[int, int]:
    fields = wire.members(block)
    return wire.quantity(fields.get("number")), wire.quantity(fields.get("baseFeePerGas"))
