"""Keys of simulated clients: derived from the run's seed, so PUBLIC: they protect nothing."""

from __future__ import annotations

from ledger.protocol.encoding import keccak256
from ledger.protocol.signing import KeySigner


def simulated_signers(seed: int, clients: int) -> tuple[KeySigner, ...]:
    """Return a signer for each client, by ascending address as the registry wants them.

    Args:
        seed: of the run.
        clients: K.

    Returns:
        TEST KEYS, never to be used for anything of value.
    """
    signers = [
        KeySigner(keccak256(b"PUBLIC TEST KEY of a simulated client %d %d" % (seed, client)))
        for client in range(clients)
    ]
    return tuple(sorted(signers, key=lambda signer: signer.address))
