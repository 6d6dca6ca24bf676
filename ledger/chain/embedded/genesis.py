"""The chain id and the funded accounts of an embedded chain, as its block 0 fixes them.

Transactions need a sender with funds, but the sender proves nothing: the ledger trusts only the
clients' signatures inside the call data. The accounts' keys are public on purpose: they are derived
from a sentence in this file, are worthless, and must never hold value on another chain.
"""

from __future__ import annotations

from eth_keys.datatypes import PrivateKey

from ledger.protocol.keccak import keccak

DEFAULT_CHAIN_ID = 0x434D464C
"""The letters CMFL: not the id of a public chain, which prevents replays."""

SALT_BITS = 22


def fresh_chain_id(salt: int) -> int:
    """Return the chain id of a new embedded chain.

    Runs of one configuration have the same contract address. On chains with one id, a signature of
    one run is valid in the other, and two different honest votes would prove an equivocation. So a
    chain for keys of owners has a random salt. A simulation's keys are public, and its salt
    follows from its configuration.

    Returns:
        The letters CMFL and the salt, below 2**53 for JavaScript wallets.
    """
    return DEFAULT_CHAIN_ID << SALT_BITS | salt % (1 << SALT_BITS)


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
