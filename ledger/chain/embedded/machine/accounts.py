"""The embedded chain's funded accounts, whose keys are PUBLIC on purpose.

Transactions on the embedded chain need a sender with funds, but the sender proves nothing: the
ledger trusts only the clients' own signatures inside the call data. So the relayers' keys are
derived from a sentence in this file, worth nothing, and must never hold value on another chain.
"""

from __future__ import annotations

from eth_keys.datatypes import PrivateKey

from ledger.protocol.keccak import keccak

TEST_KEYS: tuple[bytes, ...] = tuple(
    keccak(b"PUBLIC TEST KEY of the embedded chain, no secret: relayer %d" % number)
    for number in range(10)
)
"""Private keys of the accounts that genesis funds; for tests and local chains only."""

GENESIS_BALANCE_WEI = 10**27
"""What each of them owns at genesis: more than any run can spend."""


def address_of(key: bytes) -> str:
    """Return the EIP-55 address of a private key.

    Args:
        key: 32 bytes.

    Returns:
        The address that its signatures recover to.
    """
    return PrivateKey(key).public_key.to_checksum_address()
