"""Signed registrations and challenges, before there is a contract.

Both have an EIP-712 domain without a chain and a contract, so that neither can be taken for
anything that a ledger accepts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ledger.protocol.encoding import keccak256, registry_word, words
from ledger.protocol.ledger_state import registry_batches
from ledger.protocol.signing import NAME, VERSION, Signer, recover
from ledger.protocol.types import NO_DIGEST, Address, Digest, RegisteredClient

DOMAIN_FIELDS = "string name,string version"
TYPES = {
    "Registration": ("string run,bytes32 configuration,address client,uint64 samples,bytes32 data"),
    "Challenge": "bytes32 nonce",
    "DataSalt": "address client",
}
TYPE_HASHES = {name: keccak256(f"{name}({fields})".encode()) for name, fields in TYPES.items()}


@dataclass(frozen=True, slots=True)
class Registration:
    """An owner's word that it wants to take part.

    Attributes:
        samples: n_k, how many it trains on.
        data: digest of these samples, `bound_inputs.samples_digest` behind the client's own salt;
            zeros where it discloses none.
    """

    run: str
    configuration: Digest
    client: Address
    samples: int
    data: Digest = NO_DIGEST


def registration_digest(registration: Registration) -> Digest:
    """Return the EIP-712 digest that an owner signs to take part."""
    client = int.from_bytes(registration.client)
    name = keccak256(registration.run.encode())
    fields = (
        TYPE_HASHES["Registration"],
        name,
        registration.configuration,
        client,
        registration.samples,
    )
    return _typed(keccak256(words(*fields, registration.data)))


def challenge_digest(nonce: bytes) -> Digest:
    """Return the EIP-712 digest that proves a key to the one who drew a nonce of 32 bytes."""
    return _typed(keccak256(words(TYPE_HASHES["Challenge"], nonce)))


def data_salt(signer: Signer) -> bytes:
    """Return the secret salt of the digest of a client's samples.

    It is the digest of a deterministic signature (RFC 6979) that never leaves the owner's machine:
    no one else can try guesses of small data, and there is no file of it to lose.
    """
    client = int.from_bytes(signer.address)
    digest = _typed(keccak256(words(TYPE_HASHES["DataSalt"], client)))
    return keccak256(signer.sign(digest))


def is_registered_by_owner(registration: Registration, signature: bytes) -> bool:
    """Say whether a registration is signed by its client; SignatureError if it is malformed."""
    return recover(registration_digest(registration), signature) == registration.client


def registry_digest_of(registry: Sequence[RegisteredClient]) -> Digest:
    """Return the digest by which a contract knows its registry."""
    return registry_batches([registry_word(client) for client in registry])[0]


def _typed(struct_hash: Digest) -> Digest:
    domain = keccak256(f"EIP712Domain({DOMAIN_FIELDS})".encode())
    separator = keccak256(words(domain, keccak256(NAME.encode()), keccak256(VERSION.encode())))
    return keccak256(b"\x19\x01" + separator + struct_hash)
