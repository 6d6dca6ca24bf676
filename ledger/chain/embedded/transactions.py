"""Transactions of an embedded chain: signed here, or decoded from the bytes of others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eth.exceptions import PyEVMError
from eth_keys.datatypes import PrivateKey
from eth_keys.exceptions import BadSignature
from eth_typing import Address
from rlp.exceptions import RLPException  # type: ignore[import-untyped]

from ledger.chain.addresses import to_canonical
from ledger.chain.embedded import evm
from ledger.chain.ports import TransactionRefusedError, WrongChainIdError

if TYPE_CHECKING:
    from eth.abc import SignedTransactionAPI, VirtualMachineAPI

_MALFORMED = (TypeError, ValueError, RecursionError)
_TRANSACTION_TYPES = (1, 2)  # EIP-2930 and EIP-1559: both contain the chain id


@dataclass(frozen=True, slots=True)
class UnsignedCall:
    """A transaction before it has a nonce and a signature.

    Attributes:
        to: EIP-55; None to create a contract.
        fee: the most that is paid, in wei per gas.
        value: wei to transfer.
    """

    to: str | None
    data: bytes
    gas: int
    fee: int
    value: int


def sign_transaction(
    machine: VirtualMachineAPI, chain_id: int, call: UnsignedCall, key: bytes
) -> SignedTransactionAPI:
    """Return the key's next transaction at the machine's state, signed."""
    signer = PrivateKey(key)
    nonce = machine.state.get_nonce(Address(signer.public_key.to_canonical_address()))
    unsigned = machine.get_transaction_builder().new_unsigned_dynamic_fee_transaction(  # type: ignore[attr-defined]
        chain_id=chain_id,
        nonce=nonce,
        max_priority_fee_per_gas=0,
        max_fee_per_gas=call.fee,
        gas=call.gas,
        to=to_canonical(call.to) if call.to is not None else b"",
        value=call.value,
        data=call.data,
        access_list=(),
    )
    signed: SignedTransactionAPI = unsigned.as_signed_transaction(signer)
    return signed


def decode_transaction(
    machine: VirtualMachineAPI, chain_id: int, raw: bytes
) -> SignedTransactionAPI:
    """Return a signed transaction of this chain, decoded and not executed."""
    if raw[:1] not in {bytes([kind]) for kind in _TRANSACTION_TYPES}:
        raise TransactionRefusedError(
            "only EIP-1559 and access-list transactions are taken: others may name no chain"
        )
    try:
        signed: SignedTransactionAPI = machine.get_transaction_builder().decode(raw)
        _ = signed.sender
    except BadSignature as error:
        raise TransactionRefusedError("the transaction's signature is invalid") from error
    except (RLPException, PyEVMError, *evm.REFUSALS, *_MALFORMED) as error:
        raise TransactionRefusedError("the transaction is malformed") from error
    require_own_chain(signed, chain_id)
    return signed


def require_own_chain(transaction: SignedTransactionAPI, chain_id: int) -> None:
    """Raise a WrongChainIdError unless a transaction is signed for this chain."""
    # py-evm never compares a transaction's chain id with the chain's (py-evm #1352).
    if transaction.chain_id != chain_id:
        raise WrongChainIdError(
            f"the transaction is signed for chain {transaction.chain_id}, this is {chain_id}"
        )
