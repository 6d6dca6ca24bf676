"""Public test keys, and the registries made of them.

Keys are derived from a sentence, so everybody knows them: PUBLIC TEST KEYS, worth nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from eth_account import Account

from ledger.protocol.encoding import RegisteredClient, keccak256
from ledger.protocol.signing import GROUP_ORDER, KeySigner
from ledger.protocol.types import Address, ClientId, Digest, Domain

DOMAIN = Domain(31337, Address(bytes(range(20))), Digest(bytes(range(32))))


def ids(*clients: int) -> tuple[ClientId, ...]:
    return tuple(map(ClientId, clients))


@cache
def key_signers(count: int, owner: str = "client") -> tuple[KeySigner, ...]:
    """Return PUBLIC TEST KEYS, ascending by address as a registry must be."""
    keys = (keccak256(f"PUBLIC TEST KEY of {owner} {i}".encode()) for i in range(count))
    return tuple(sorted(map(KeySigner, keys), key=lambda signer: signer.address))


def write_keystore(path: Path, key: bytes, password: str = "correct horse battery staple") -> None:
    path.write_text(json.dumps(Account.encrypt(key, password, kdf="pbkdf2", iterations=2)))


def registered(
    signers: Iterable[KeySigner], samples: int | None = None
) -> tuple[RegisteredClient, ...]:
    """Return a registry: client i claims 10 + i samples, or each as many as are given."""
    return tuple(
        RegisteredClient(signer.address, 10 + i if samples is None else samples)
        for i, signer in enumerate(signers)
    )


def mirrored(signature: bytes) -> bytes:
    s = GROUP_ORDER - int.from_bytes(signature[32:64])
    return signature[:32] + s.to_bytes(32) + bytes([55 - signature[64]])
