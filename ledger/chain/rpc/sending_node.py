"""What whoever sends transactions asks a node, beside what every reader asks it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.chain.ports import TransactionRevertedError
from ledger.chain.rpc import wire
from ledger.chain.rpc.reader import GWEI, RpcReader, verify_asked

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Market:
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

    def market(self) -> Market:
        """Return what gas costs now.

        Raises:
            MalformedAnswerError: the newest block has no base fee.
        """
        number, base = self._ask(_fee_of_block, "eth_getBlockByNumber", "latest", False)
        try:
            tip = self._ask(wire.quantity, "eth_maxPriorityFeePerGas")
        except wire.RpcFault:
            tip = GWEI
        return Market(number, base, tip)

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
                verify_asked(wire.data(wire.members(answer).get("hash"), 32), transaction_hash)
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


def _fee_of_block(block: object) -> tuple[int, int]:
    found = wire.members(block)
    return wire.quantity(found.get("number")), wire.quantity(found.get("baseFeePerGas"))
