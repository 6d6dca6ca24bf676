"""The embedded chain's funded accounts, whose keys are public on purpose.

Transactions need a sender with funds, but the sender proves nothing: the ledger trusts only the
clients' signatures inside the call data. The relayers' keys are derived from a sentence in this
file. They are worthless and must never hold value on another chain.
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
"""Balance of each account at genesis: more than any run can spend."""


def address_of(key: bytes) -> str:
    """Return the EIP-55 address of a 32-byte private key."""
    return PrivateKey(key).public_key.to_checksum_address()
