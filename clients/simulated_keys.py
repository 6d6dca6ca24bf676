"""PUBLIC keys of simulated clients, derived from the run's seed: they protect nothing."""

from __future__ import annotations

from ledger.protocol.encoding import keccak256
from ledger.protocol.signing import KeySigner


def simulated_keys(seed: int, clients: int) -> tuple[bytes, ...]:
    """Return TEST KEYS, 32 bytes for each client, by ascending address as in the registry."""
    keys = [
        keccak256(b"PUBLIC TEST KEY of a simulated client %d %d" % (seed, client))
        for client in range(clients)
    ]
    return tuple(sorted(keys, key=lambda key: KeySigner(key).address))


def simulated_signers(seed: int, clients: int) -> tuple[KeySigner, ...]:
    """Return signers with TEST KEYS, by ascending address as in the registry."""
    return tuple(KeySigner(key) for key in simulated_keys(seed, clients))
