"""Keys of simulated clients: derived from the run's seed, so PUBLIC: they protect nothing."""

from __future__ import annotations

from ledger.protocol.encoding import keccak256
from ledger.protocol.signing import KeySigner


def simulated_keys(seed: int, clients: int) -> tuple[bytes, ...]:
    """Return the private key of each client, by ascending address as the registry wants them.

    Args:
        seed: of the run.
        clients: K.

    Returns:
        TEST KEYS, 32 bytes each, never to be used for anything of value.
    """
    keys = [
        keccak256(b"PUBLIC TEST KEY of a simulated client %d %d" % (seed, client))
        for client in range(clients)
    ]
    return tuple(sorted(keys, key=lambda key: KeySigner(key).address))


def simulated_signers(seed: int, clients: int) -> tuple[KeySigner, ...]:
    """Return a signer for each client, by ascending address as the registry wants them.

    Args:
        seed: of the run.
        clients: K.

    Returns:
        Signers with TEST KEYS, never to be used for anything of value.
    """
    return tuple(KeySigner(key) for key in simulated_keys(seed, clients))
