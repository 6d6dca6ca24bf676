"""Methods that write: a transaction that its sender signed, and blocks on demand.

What cannot go into a block is refused in the words that geth has for it, since wallets and
libraries read them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eth.exceptions import PyEVMError
from eth.vm.forks.prague import PragueVM
from eth_keys.exceptions import BadSignature
from eth_utils.exceptions import ValidationError
from rlp.exceptions import RLPException  # type: ignore[import-untyped]

from ledger.chain.addresses import checksum
from ledger.chain.rpc import wire
from ledger.chain.rpc.served.block_methods import next_base_fee

if TYPE_CHECKING:
    from eth.abc import SignedTransactionAPI

    from ledger.chain.embedded.chain import EmbeddedChain
    from ledger.chain.rpc.served.block_methods import Methods

_MOST_BLOCKS_AT_ONCE = 1000
_MALFORMED = (PyEVMError, RLPException, ValidationError, TypeError, ValueError, RecursionError)


class SendingMethods:
    """Takes transactions into a chain that is open for writing.

    Args:
        chain: the chain.

    Attributes:
        table: the methods by name.
    """

    def __init__(self, chain: EmbeddedChain) -> None:
        self._chain = chain
        self.table: Methods = {
            "eth_sendRawTransaction": self._send,
            "evm_mine": self._mine,
        }

    def _send(self, raw: object) -> str:
        sent = wire.data(raw)
        refusal = self._refusal(sent)
        if refusal is not None:
            raise wire.RpcFault(wire.SERVER_ERROR, refusal)
        return wire.to_hex(self._chain.submit(sent))

    def _refusal(self, sent: bytes) -> str | None:
        """Return why a transaction cannot be taken, in geth's words; None if nothing tells."""
        try:
            signed = PragueVM.get_transaction_builder().decode(sent)
        except _MALFORMED:
            return "rlp: the transaction is malformed"
        if signed.chain_id != self._chain.chain_id:
            return (
                f"invalid chain id for signer: have {signed.chain_id} want {self._chain.chain_id}"
            )
        try:
            sender = checksum(bytes(signed.sender))
        except (*_MALFORMED, BadSignature):
            return "invalid sender: the signature recovers to no account"
        if self._chain.find(bytes(signed.hash)) is not None:
            return "already known"
        return self._unaffordable(sender, signed)

    def _unaffordable(self, sender: str, signed: SignedTransactionAPI) -> str | None:
        nonce, balance = self._chain.account(sender)
        head = self._chain.header()
        fee, cost = next_base_fee(head), signed.gas * signed.max_fee_per_gas + signed.value
        if signed.nonce != nonce:
            far = "low" if signed.nonce < nonce else "high"
            return f"nonce too {far}: address {sender}, tx: {signed.nonce} state: {nonce}"
        if signed.max_fee_per_gas < fee:
            return (
                f"max fee per gas less than block base fee: address {sender}, "
                f"maxFeePerGas: {signed.max_fee_per_gas}, baseFee: {fee}"
            )
        if balance < cost:
            return (
                f"insufficient funds for gas * price + value: address {sender} "
                f"have {balance} want {cost}"
            )
        if signed.gas < signed.intrinsic_gas:
            return f"intrinsic gas too low: have {signed.gas}, want {signed.intrinsic_gas}"
        if signed.gas > head.gas_limit:
            return f"exceeds block gas limit: {signed.gas} over {head.gas_limit}"
        return None

    def _mine(self, blocks: object = "0x1") -> str:
        number = wire.quantity(blocks)
        if number > _MOST_BLOCKS_AT_ONCE:
            raise wire.RpcFault(
                wire.LIMIT_EXCEEDED, f"at most {_MOST_BLOCKS_AT_ONCE} blocks at once"
            )
        self._chain.mine(number)
        return "0x0"
