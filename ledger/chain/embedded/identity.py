"""Chain ids of embedded chains."""

from __future__ import annotations

DEFAULT_CHAIN_ID = 0x434D464C
"""The letters CMFL: not the id of a public chain, which prevents replays."""

SALT_BITS = 22


def fresh_chain_id(salt: int) -> int:
    """Return a chain id that differs from those of all other embedded chains.

    Two runs of one configuration have the same contract address. On chains with one id a signature
    of the first run would be valid in the second, and two honest votes would prove an equivocation.

    Args:
        salt: `SALT_BITS` random bits.

    Returns:
        The letters CMFL and the salt, below 2**53 for JavaScript wallets.
    """
    return DEFAULT_CHAIN_ID << SALT_BITS | salt
