"""Addresses: EIP-55 text outside, 20 bytes inside the chain room."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import rlp  # type: ignore[import-untyped]
from eth_utils.address import (
    is_address,
    is_checksum_address,
    to_canonical_address,
    to_checksum_address,
)

from ledger.protocol.errors import ChainError
from ledger.protocol.keccak import keccak

if TYPE_CHECKING:
    from eth_typing import Address


@functools.lru_cache(maxsize=1024)
def to_canonical(address: str) -> Address:
    """Return an address as 20 bytes.

    Args:
        address: EIP-55, or hex in one case.

    Returns:
        The 20 bytes.

    Raises:
        ChainError: it is no address, or its checksum is wrong.
    """
    digits = address.removeprefix("0x")
    mixed = digits not in {digits.lower(), digits.upper()}
    if not is_address(address) or (mixed and not is_checksum_address(address)):
        raise ChainError(f"{address[:60]!r} is not an address, or its checksum is wrong")
    return to_canonical_address(address)


@functools.lru_cache(maxsize=1024)
def checksum(address: bytes) -> str:
    """Return an address as EIP-55 text.

    Args:
        address: 20 bytes.
    """
    return to_checksum_address(address)


def contract_created_by(sender: bytes, nonce: int) -> bytes:
    """Return the address of the contract that a transaction creates.

    Args:
        sender: who sends it, 20 bytes.
        nonce: the transaction's.

    Returns:
        The address, 20 bytes.
    """
    return bytes(keccak(rlp.encode([sender, nonce]))[12:])
