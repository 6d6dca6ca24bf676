"""What a key signs before there is a contract: its owner's wish to take part, and that it is there.

Both have an EIP-712 domain without a chain and a contract, so that neither can be taken for
anything that a ledger accepts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.protocol.encoding import keccak256, registry_word, words
from ledger.protocol.ledger_state import registry_batches
from ledger.protocol.signing import NAME, VERSION, recover

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.protocol.types import Address, Digest, RegisteredClient

DOMAIN_FIELDS = "string name,string version"
TYPES = {
    "Registration": "string run,bytes32 configuration,address client,uint64 samples",
    "Challenge": "bytes32 nonce",
}
TYPE_HASHES = {name: keccak256(f"{name}({fields})".encode()) for name, fields in TYPES.items()}


@dataclass(frozen=True, slots=True)
class Registration:
    """An owner's word that it wants to take part.

    Attributes:
        run: name of the run.
        configuration: digest of the proposed configuration.
        client: address of its key.
        samples: n_k, how many it trains on.
    """

    run: str
    configuration: Digest
    client: Address
    samples: int


def registration_digest(registration: Registration) -> Digest:
    """Return the EIP-712 digest that an owner signs to take part."""
    client = int.from_bytes(registration.client)
    name, about = keccak256(registration.run.encode()), registration.configuration
    fields = (TYPE_HASHES["Registration"], name, about, client, registration.samples)
    return _typed(keccak256(words(*fields)))


def challenge_digest(nonce: bytes) -> Digest:
    """Return the EIP-712 digest that proves a key to whoever has drawn a nonce of 32 bytes."""
    return _typed(keccak256(words(TYPE_HASHES["Challenge"], nonce)))


def is_registered_by_owner(registration: Registration, signature: bytes) -> bool:
    """Say whether a registration carries a signature of the client that it names.

    Args:
        registration: the statement.
        signature: 65 bytes r ‖ s ‖ v.

    Raises:
        SignatureError: it is not canonical, or nothing recovers from it.
    """
    return recover(registration_digest(registration), signature) == registration.client


def registry_digest_of(registry: Sequence[RegisteredClient]) -> Digest:
    """Return the digest by which a contract knows its registry.

    Args:
        registry: all clients, addresses ascending.
    """
    return registry_batches([registry_word(client) for client in registry])[0]


def _typed(struct_hash: Digest) -> Digest:
    domain = keccak256(f"EIP712Domain({DOMAIN_FIELDS})".encode())
    separator = keccak256(words(domain, keccak256(NAME.encode()), keccak256(VERSION.encode())))
    return keccak256(b"\x19\x01" + separator + struct_hash)
