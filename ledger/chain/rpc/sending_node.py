"""What whoever sends transactions asks a node, beside what every reader asks it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.chain.ports import NotServedError, TransactionRevertedError
from ledger.chain.rpc import wire
from ledger.chain.rpc.rpc_reader import GWEI, RpcReader, require_same_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ledger.chain.ports import Receipt


@dataclass(frozen=True, slots=True)
class GasMarket:
    """What gas costs now.

    Attributes:
        block_number: the newest block.
        base_fee: its own, in wei for each gas.
        tip: that the node suggests, in wei for each gas.
    """

    block_number: int
    base_fee: int
    tip: int


class SendingNode(RpcReader):
    """A node that takes signed transactions. Safe to share between threads."""

    def market(self) -> GasMarket:
        """Return what gas costs now.

        Raises:
            MalformedAnswerError: the newest block has no base fee.
        """
        number, base = self._ask(_fee_of_block, "eth_getBlockByNumber", "latest", False)
        try:
            tip = self._ask(wire.quantity, "eth_maxPriorityFeePerGas")
        except wire.RpcFault:
            tip = GWEI
        return GasMarket(number, base, tip)

    def client_version(self) -> str:
        """Return what the node calls itself."""
        return self._ask(str, "web3_clientVersion")

    def nonce(self, account: str, *, pending: bool) -> int:
        """Return how many transactions an account has sent.

        Args:
            account: EIP-55.
            pending: whether those count that no block holds yet.
        """
        tag = "pending" if pending else "latest"
        return self._ask(wire.quantity, "eth_getTransactionCount", account, tag)

    def nonce_at(self, account: str, block_number: int) -> int:
        """Return how many transactions of an account were in the blocks up to one.

        Args:
            account: EIP-55.
            block_number: the block.
        """
        tag = hex(block_number)
        return self._ask(wire.quantity, "eth_getTransactionCount", account, tag)

    def receipt_of(self, sender: str, nonce: int) -> Receipt | None:
        """Return the receipt of an account's transaction; None while no block holds it.

        All is asked of blocks by their numbers: one node of several behind a URL that lags has no
        such block, and does not answer as if the transaction had never been.

        Args:
            sender: EIP-55.
            nonce: of the transaction.

        Raises:
            NotServedError: the node lags, or its chain changes meanwhile.
        """
        newest = self.head().number
        if self.nonce_at(sender, newest) <= nonce:
            return None
        for number in reversed(blocks_of(nonce, newest, functools.partial(self.nonce_at, sender))):
            found = self._ask(_sent_by(sender, nonce), "eth_getBlockByNumber", hex(number), True)
            if found is not None and (receipt := self.receipt(found)) is not None:
                return receipt
        raise NotServedError(
            f"{self._node.shown_url}: as the node has it, no block holds the transaction of "
            f"{sender} with nonce {nonce}, which is mined"
        )

    def post(self, raw: bytes) -> bytes:
        """Give the node a signed transaction, once; return the hash under which it has taken it.

        It is not asked again here where nobody knows whether it has: what it then says of a
        transaction that it has already, would read as if somebody else had sent it.

        Args:
            raw: its encoding.

        Raises:
            RpcFault: the node does not take it, or has it already.
            NotServedError: nobody knows whether the node has it.
        """
        return wire.data(self._node.ask("eth_sendRawTransaction", wire.to_hex(raw)), 32)

    def has(self, transaction_hash: bytes) -> bool:
        """Return whether the node has a transaction, in a block or waiting for one.

        Args:
            transaction_hash: its hash, 32 bytes.
        """

        def read(answer: object) -> bool:
            if answer is not None:
                require_same_hash(wire.data(wire.members(answer).get("hash"), 32), transaction_hash)
            return answer is not None

        return self._ask(read, "eth_getTransactionByHash", wire.to_hex(transaction_hash))

    def revert_data(self, request: Mapping[str, str], block_number: int) -> bytes:
        """Return what a transaction that reverted gave as its reason; empty if nothing tells.

        Args:
            request: the transaction, as `eth_call` takes it.
            block_number: that holds it.
        """
        # The state just before the transaction is the parent's, unless its block held others.
        for number in (block_number - 1, block_number):
            try:
                self._call(dict(request), number)
            except TransactionRevertedError as error:
                return error.data
            except wire.RpcFault:  # out of gas, or the node has forgotten the state
                continue
        return b""

    def gas_of(self, request: Mapping[str, str]) -> int:
        """Return how much gas the node would need for a transaction now.

        Args:
            request: the transaction, as `eth_estimateGas` takes it.

        Raises:
            TransactionRevertedError: it would revert.
            RpcFault: the node says something else against it.
        """
        try:
            return self._ask(wire.quantity, "eth_estimateGas", dict(request))
        except wire.RpcFault as fault:
            reverted = wire.revert_data(fault)
            if reverted is None:
                raise
            raise TransactionRevertedError(reverted) from fault


def blocks_of(nonce: int, newest: int, count: Callable[[int], int]) -> range:
    """Return the blocks one of which holds a transaction; one, where the node keeps old states.

    About two questions for each doubling of its depth, since most that is looked for is young.

    Args:
        nonce: of the transaction.
        newest: number of a block after which it is on the chain.
        count: returns how many transactions of its account are in the blocks up to one.
    """
    before, after, step = -1, newest, 1
    try:
        while after - before > 1:
            probe = max(0, after - step) if before < 0 else (before + after) // 2
            if count(probe) > nonce:
                after, step = probe, 2 * step
            else:
                before = probe
    except wire.RpcFault:  # the node has forgotten the state: its blocks are all there is
        pass
    return range(before + 1, after + 1)


def _sent_by(sender: str, nonce: int) -> Callable[[object], bytes | None]:
    """Return how to find the hash of an account's transaction in a block."""

    def read(block: object) -> bytes | None:
        for entry in wire.items(wire.members(block).get("transactions")):
            found = wire.members(entry)
            is_its = wire.quantity(found.get("nonce")) == nonce
            if is_its and wire.address(found.get("from")) == sender:
                return wire.data(found.get("hash"), 32)
        return None

    return read


def _fee_of_block(block: object) -> tuple[int, int]:
    found = wire.members(block)
    return wire.quantity(found.get("number")), wire.quantity(found.get("baseFeePerGas"))
