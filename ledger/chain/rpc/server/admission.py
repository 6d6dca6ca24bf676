"""Admission of signed transactions, with the error messages of geth, which wallets parse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.chain.addresses import checksum
from ledger.chain.embedded.machine.evm_values import next_base_fee

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eth.abc import BlockHeaderAPI, SignedTransactionAPI

    from ledger.chain.embedded.embedded_reader import EmbeddedReader

# Least fees of a replacement, as a fraction of the replaced transaction's.
_REPLACING = (11, 10)


def rejection_message(
    chain: EmbeddedReader, signed: SignedTransactionAPI, waiting: Sequence[SignedTransactionAPI]
) -> str | None:
    """Return why a transaction cannot be accepted; None if it can.

    Args:
        chain: the chain.
        signed: the transaction, with a valid signature.
        waiting: its sender's pending transactions, ascending by nonce.
    """
    hash_ = bytes(signed.hash)
    if chain.find(hash_) is not None or any(bytes(pending.hash) == hash_ for pending in waiting):
        return "already known"
    sender = checksum(bytes(signed.sender))
    nonce, balance = chain.account(sender)
    ahead = {pending.nonce: pending for pending in waiting if pending.nonce >= nonce}
    if signed.nonce < nonce:
        return f"nonce too low: address {sender}, tx: {signed.nonce} state: {nonce}"
    if signed.nonce > nonce + len(ahead):
        following = nonce + len(ahead)
        return f"nonce too high: address {sender}, tx: {signed.nonce} state: {following}"
    replaced = ahead.pop(signed.nonce, None)
    cost = sum(
        pending.gas * pending.max_fee_per_gas + pending.value
        for pending in (*ahead.values(), signed)
    )
    if replaced is not None and not _outbids(signed, replaced):
        return "replacement transaction underpriced"
    if balance < cost:
        return (
            f"insufficient funds for gas * price + value: address {sender} "
            f"have {balance} want {cost}"
        )
    return _misfit(chain.header(), signed, sender)


def _misfit(head: BlockHeaderAPI, signed: SignedTransactionAPI, sender: str) -> str | None:
    """Return why no block can hold a transaction by its fee or gas; None if one can."""
    fee = next_base_fee(head)
    if signed.max_fee_per_gas < fee:
        return (
            f"max fee per gas less than block base fee: address {sender}, "
            f"maxFeePerGas: {signed.max_fee_per_gas}, baseFee: {fee}"
        )
    if signed.gas < signed.intrinsic_gas:
        return f"intrinsic gas too low: have {signed.gas}, want {signed.intrinsic_gas}"
    if signed.gas > head.gas_limit:
        return f"exceeds block gas limit: {signed.gas} over {head.gas_limit}"
    return None


def _outbids(signed: SignedTransactionAPI, replaced: SignedTransactionAPI) -> bool:
    """Return whether a transaction raises both fees of the one with its nonce enough."""
    more, of = _REPLACING
    return all(
        new > old and of * new >= more * old
        for new, old in (
            (signed.max_fee_per_gas, replaced.max_fee_per_gas),
            (signed.max_priority_fee_per_gas, replaced.max_priority_fee_per_gas),
        )
    )
