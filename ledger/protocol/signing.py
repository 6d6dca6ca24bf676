"""EIP-712 typed data and secp256k1 signatures of messages and of registrations.

A signature is 65 bytes r ‖ s ‖ v with v 27 or 28. The s is in the lower half of the group order, so
a third party cannot turn a valid signature into another valid one. A registration's domain has no
chain and contract, so that no ledger accepts its signature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import coincurve

from ledger.protocol.encoding import RegisteredClient, keccak, keccak256, registry_word, words
from ledger.protocol.errors import SignatureError
from ledger.protocol.ledger_state import registry_batches
from ledger.protocol.types import (
    NO_DIGEST,
    Address,
    Commitment,
    Digest,
    Domain,
    EnvironmentStatement,
    ReplayStatement,
    Scores,
    Upload,
    Vote,
)

GROUP_ORDER = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141
NAME = "CMFL Ledger"
VERSION = "3"

_VOTE_FIELDS = "uint64 round,uint8 phase,uint32 view,bytes32 base,bytes32 set,bytes32 result"
TYPES = {
    "EIP712Domain": (
        "string name,string version,uint256 chainId,address verifyingContract,bytes32 salt"
    ),
    "Commitment": "uint64 round,uint32 client,bytes32 commitment",
    "Scores": "uint64 round,uint32 member,bytes32 base,bytes32 clients,bytes32 digest",
    "Request": _VOTE_FIELDS,
    "Reply": _VOTE_FIELDS,
    "Upload": "uint64 round,uint32 client,string url,bytes32 digest,uint64 size",
    "Environment": "uint64 round,uint32 client,bytes32 environment",
    "Replay": (
        "bytes32 run,uint64 round,uint32 client,uint8 verdict,bytes32 environment,bytes32 witness"
    ),
}
"""A message's fields are those of its type, in the same order."""
REGISTRATION_TYPES = {
    "Registration": "string run,bytes32 configuration,address client,uint64 samples,bytes32 data",
    "Challenge": "bytes32 nonce",
    "DataSalt": "address client",
}
TYPE_HASHES = {
    name: keccak256(f"{name}({fields})".encode())
    for name, fields in (TYPES | REGISTRATION_TYPES).items()
}

Message = Commitment | Scores | Vote | Upload | EnvironmentStatement | ReplayStatement

_NAMES = {EnvironmentStatement: "Environment", ReplayStatement: "Replay"}


class Signer(Protocol):
    """A signer for one client, which never hands out the key."""

    @property
    def address(self) -> Address:
        """The address that its signatures recover to."""

    def sign(self, digest: Digest) -> bytes:
        """Return 65 bytes r ‖ s ‖ v over the digest."""


class KeySigner:
    """A signer that holds its private key in memory."""

    def __init__(self, private_key: bytes) -> None:
        self._key = coincurve.PrivateKey(private_key)
        self.address = _address(self._key.public_key)

    def sign(self, digest: Digest) -> bytes:
        """Return 65 bytes r ‖ s ‖ v over the digest (deterministic, RFC 6979, low s)."""
        signature: bytes = self._key.sign_recoverable(digest, hasher=None)
        return signature[:64] + bytes([signature[64] + 27])


@lru_cache(maxsize=16)
def domain_separator(domain: Domain) -> Digest:
    """Return the EIP-712 hash of the domain."""
    names = [keccak256(NAME.encode()), keccak256(VERSION.encode())]
    where = (domain.chain_id, int.from_bytes(domain.contract), domain.salt)
    return keccak256(words(TYPE_HASHES["EIP712Domain"], *names, *where))


@lru_cache(maxsize=4096)
def typed_digest(domain: Domain, message: Message) -> Digest:
    """Return the EIP-712 digest of a message: keccak256(0x1901 ‖ domain separator ‖ its hash)."""
    return Digest(keccak(b"\x19\x01" + domain_separator(domain) + _struct_hash(message)))


def sign(signer: Signer, domain: Domain, message: Message) -> bytes:
    """Return the signer's signature of a message, 65 bytes."""
    return signer.sign(typed_digest(domain, message))


def recover(digest: Digest, signature: bytes) -> Address:
    """Return the address that signed a digest; SignatureError if the signature is not canonical."""
    if len(signature) != 65 or signature[64] not in {27, 28}:
        raise SignatureError("a signature is 65 bytes with v 27 or 28")
    if int.from_bytes(signature[32:64]) > GROUP_ORDER // 2:
        raise SignatureError("the signature's s is in the upper half of the group order")
    address = recovered(digest, signature)
    if address is None:
        raise SignatureError("no key recovers from the signature")
    return address


@lru_cache(maxsize=4096)
def recovered(digest: bytes, signature: bytes) -> Address | None:
    """Return the address behind r ‖ s ‖ v, with s of either half; None if no key recovers."""
    raw = signature[:64] + bytes([signature[64] - 27])
    try:
        return _address(coincurve.PublicKey.from_signature_and_message(raw, digest, hasher=None))
    except ValueError:
        return None


def is_signed_by(address: Address, domain: Domain, message: Message, signature: bytes) -> bool:
    """Say whether a message for a domain carries a canonical signature of an address."""
    try:
        return recover(typed_digest(domain, message), signature) == address
    except SignatureError:
        return False


def _struct_hash(message: Message) -> Digest:
    if isinstance(message, Vote):
        where = (message.round, message.phase, message.view, message.base)
        return _hash_of(message.kind.value, *where, message.set_digest, message.result)
    values = (getattr(message, name) for name in type(message).__slots__)
    kind = type(message)
    return _hash_of(_NAMES.get(kind, kind.__name__), *values)


def _hash_of(name: str, *values: int | bytes | str) -> Digest:
    """Return the EIP-712 hash of a struct; a text is hashed, and an address is a number."""
    encoded: list[bytes] = [TYPE_HASHES[name]]
    for value in values:
        hashed = keccak(value.encode()) if isinstance(value, str) else value
        encoded.append(hashed if isinstance(hashed, bytes) else hashed.to_bytes(32))
    return Digest(keccak(b"".join(encoded)))


def _address(public_key: coincurve.PublicKey) -> Address:
    return Address(keccak(public_key.format(compressed=False)[1:])[12:])


@dataclass(frozen=True, slots=True)
class Registration:
    """An owner's statement that it wants to take part."""

    run: str
    configuration: Digest
    client: Address
    samples: int  # n_k, as many as it trains on
    data: Digest = NO_DIGEST  # `inputs.samples_digest` behind the client's salt, or undisclosed


def registration_digest(registration: Registration) -> Digest:
    """Return the EIP-712 digest that an owner signs to take part."""
    owner = registration.run, registration.configuration, int.from_bytes(registration.client)
    return _typed(_hash_of("Registration", *owner, registration.samples, registration.data))


def challenge_digest(nonce: bytes) -> Digest:
    """Return the EIP-712 digest that proves a key to the one who drew a nonce of 32 bytes."""
    return _typed(_hash_of("Challenge", nonce))


def data_salt(signer: Signer) -> bytes:
    """Return the secret salt of the digest of a client's samples.

    It is the digest of a deterministic signature (RFC 6979) that never leaves the owner's machine:
    others cannot try guesses of small data, and there is no file of it to lose.
    """
    return keccak256(signer.sign(_typed(_hash_of("DataSalt", int.from_bytes(signer.address)))))


def is_registered_by_owner(registration: Registration, signature: bytes) -> bool:
    """Say whether a registration is signed by its client; SignatureError if it is malformed."""
    return recover(registration_digest(registration), signature) == registration.client


def registry_digest_of(registry: Sequence[RegisteredClient]) -> Digest:
    """Return the digest that identifies the registry in a contract."""
    return registry_batches([registry_word(client) for client in registry])[0]


def _typed(struct_hash: Digest) -> Digest:
    domain = keccak256(b"EIP712Domain(string name,string version)")
    separator = keccak256(words(domain, keccak256(NAME.encode()), keccak256(VERSION.encode())))
    return keccak256(b"\x19\x01" + separator + struct_hash)
