"""Named random streams under one seed, and PUBLIC keys of simulated clients, which protect nothing.

A purpose that draws more, or less, never shifts another's numbers: two methods compared on one seed
see the same data, the same initial model, the same attackers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.encoding import keccak256
from ledger.protocol.signing import KeySigner


def named_stream(seed: int | bytes, *names: str | int) -> np.random.Generator:
    """Return the generator of a named purpose, such as "attack", 17, under a seed."""
    digest = hashlib.sha256(repr((seed, *names)).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))


def permutations(seed: bytes, length: int) -> Iterator[NDArray[np.int64]]:
    """Yield permutations of 0 .. length - 1 without end, all determined by `seed`."""
    bits = np.random.PCG64(int.from_bytes(seed, "little"))
    while True:
        # Sorted raw draws, not Generator.permutation: NumPy promises only the raw output of
        # PCG64 for good, and the owner of an update must be able to repeat it years later.
        yield np.argsort(bits.random_raw(length), kind="stable")


def simulated_keys(seed: int, clients: int) -> tuple[bytes, ...]:
    """Return TEST KEYS, 32 bytes for each client, by ascending address as in the registry."""
    name = b"PUBLIC TEST KEY of a simulated client %d %d"
    keys = [keccak256(name % (seed, client)) for client in range(clients)]
    return tuple(sorted(keys, key=lambda key: KeySigner(key).address))


def simulated_signers(seed: int, clients: int) -> tuple[KeySigner, ...]:
    """Return signers with TEST KEYS, by ascending address as in the registry."""
    return tuple(KeySigner(key) for key in simulated_keys(seed, clients))
