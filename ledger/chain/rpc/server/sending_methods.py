"""JSON-RPC methods that write: signed transactions, and blocks on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eth.exceptions import PyEVMError
from eth.vm.forks.prague import PragueVM
from eth_keys.exceptions import BadSignature
from eth_utils.exceptions import ValidationError
from rlp.exceptions import RLPException  # type: ignore[import-untyped]

from ledger.chain.rpc import wire
from ledger.chain.rpc.server.transaction_pool import rejection_message

if TYPE_CHECKING:
    from ledger.chain.embedded.embedded_chain import EmbeddedChain
    from ledger.chain.rpc.server.block_methods import Methods
    from ledger.chain.rpc.server.transaction_pool import TransactionPool

_MOST_BLOCKS_AT_ONCE = 1000
_MALFORMED = (PyEVMError, RLPException, ValidationError, TypeError, ValueError, RecursionError)


class SendingMethods:
    """Methods that write to a chain.

    With timed blocks there is no `evm_mine`: windows and deadlines count blocks.

    Args:
        chain: the chain.
        pool: pending transactions; None to mine each at once.

    Attributes:
        table: the methods by name.
    """

    def __init__(self, chain: EmbeddedChain, pool: TransactionPool | None = None) -> None:
        self._chain = chain
        self._pool = pool
        self.table: Methods = {
            "eth_sendRawTransaction": self._send,
            "hardhat_getAutomine": lambda: pool is None,
        }
        if pool is None:
            self.table["evm_mine"] = self._mine

    def _send(self, raw: object) -> str:
        sent = wire.data(raw)
        message = self._malformed_message(sent)
        if message is not None:
            raise wire.RpcFault(wire.SERVER_ERROR, message)
        signed = self._chain.read_transaction(sent)
        if self._pool is not None:
            self._pool.add(signed)
            return wire.to_hex(signed.hash)
        message = rejection_message(self._chain, signed, ())
        if message is not None:
            raise wire.RpcFault(wire.SERVER_ERROR, message)
        return wire.to_hex(self._chain.submit(sent))

    def _malformed_message(self, sent: bytes) -> str | None:
        """Return why a transaction is malformed, in geth's words; None if it is not."""
        try:
            signed = PragueVM.get_transaction_builder().decode(sent)
        except _MALFORMED:
            return "rlp: the transaction is malformed"
        if signed.chain_id != self._chain.chain_id:
            return (
                f"invalid chain id for signer: have {signed.chain_id} want {self._chain.chain_id}"
            )
        try:
            _ = signed.sender
        except (*_MALFORMED, BadSignature):
            return "invalid sender: the signature recovers to no account"
        return None

    def _mine(self, blocks: object = "0x1") -> str:
        number = wire.quantity(blocks)
        if number > _MOST_BLOCKS_AT_ONCE:
            raise wire.RpcFault(
                wire.LIMIT_EXCEEDED, f"at most {_MOST_BLOCKS_AT_ONCE} blocks at once"
            )
        self._chain.mine(number)
        return "0x0"
