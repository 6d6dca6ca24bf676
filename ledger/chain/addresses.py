"""Ethereum addresses: 20 bytes inside this package, EIP-55 text everywhere else.

Every address from outside passes `eip55` or `to_canonical` once; afterwards equal addresses are
equal texts.
"""

from __future__ import annotations

import functools
import re

import rlp  # type: ignore[import-untyped]
from eth_typing import Address
from eth_utils.address import to_checksum_address

from ledger.protocol.encoding import keccak
from ledger.protocol.errors import ChainError

_TYPED = re.compile("(0[xX])?([0-9a-fA-F]{40})")


@functools.lru_cache(maxsize=1024)
def to_canonical(address: str) -> Address:
    """Return an address as 20 bytes."""
    match = _TYPED.fullmatch(address)
    if match is None:
        raise ChainError(f"{address[:60]!r} is not an address: 0x and 40 hex digits")
    digits = match[2]
    canonical = Address(bytes.fromhex(digits))
    is_mixed = digits not in {digits.lower(), digits.upper()}
    if is_mixed and f"0x{digits}" != checksum(canonical):
        raise ChainError(
            f"{address!r} is not an address: its checksum is wrong (EIP-55; in lower case it is "
            f"taken without one)"
        )
    return canonical


def eip55(address: str) -> str:
    """Return an address as EIP-55 text."""
    return checksum(to_canonical(address))


@functools.lru_cache(maxsize=1024)
def checksum(address: bytes) -> str:
    """Return an address as EIP-55 text."""
    return to_checksum_address(address)


def contract_created_by(sender: bytes, nonce: int) -> bytes:
    """Return the address (20 bytes) of the contract that a transaction of `sender` creates."""
    return bytes(keccak(rlp.encode([sender, nonce]))[12:])
