"""By what embedded chains are told from all other chains, and from each other."""

from __future__ import annotations

DEFAULT_CHAIN_ID = 0x434D464C
"""The letters CMFL: of no public chain, so that no transaction can be replayed on one."""

SALT_BITS = 22


def fresh_chain_id(salt: int) -> int:
    """Return the id of a chain that is to be told from all other embedded chains.

    Two runs of one configuration have the same contract address, so on chains of one id a
    signature of the one would be good on the other, and two honest votes a proof of equivocation.

    Args:
        salt: `SALT_BITS` random bits.

    Returns:
        The letters CMFL and the salt: below 2**53, as JavaScript's wallets need it.
    """
    return DEFAULT_CHAIN_ID << SALT_BITS | salt
