"""What is signed before there is a contract, held against another implementation of EIP-712."""

from __future__ import annotations

import pytest
from eth_account.messages import _hash_eip191_message, encode_typed_data
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.protocol.encoding import keccak256
from ledger.protocol.errors import SignatureError
from ledger.protocol.registration import (
    TYPES,
    Registration,
    challenge_digest,
    data_salt,
    is_registered_by_owner,
    registration_digest,
    registry_digest_of,
)
from ledger.protocol.signing import KeySigner
from ledger.protocol.types import Address, Digest, RegisteredClient

SIGNER = KeySigner(keccak256(b"PUBLIC TEST KEY of an owner"))
OTHER = KeySigner(keccak256(b"PUBLIC TEST KEY of another owner"))


def typed(name: str, message: dict[str, object]) -> bytes:
    """Return the digest that eth-account signs for a message of a domain without a contract."""
    fields = [
        {"type": kind, "name": field}
        for kind, field in (entry.split() for entry in TYPES[name].split(","))
    ]
    domain = [{"name": "name", "type": "string"}, {"name": "version", "type": "string"}]
    whole = {
        "types": {"EIP712Domain": domain, name: fields},
        "primaryType": name,
        "domain": {"name": "CMFL Ledger", "version": "3"},
        "message": message,
    }
    return bytes(_hash_eip191_message(encode_typed_data(full_message=whole)))


@settings(max_examples=20)
@given(
    run=st.text(st.characters(codec="ascii"), max_size=64),
    configuration=st.binary(min_size=32, max_size=32),
    samples=st.integers(0, 2**64 - 1),
    data=st.binary(min_size=32, max_size=32),
)
def test_a_registration_has_the_digest_of_other_tools(
    run: str, configuration: bytes, samples: int, data: bytes
) -> None:
    about = Digest(configuration), SIGNER.address, samples, Digest(data)
    registration = Registration(run, *about)
    message = {
        "run": run,
        "configuration": configuration,
        "client": f"0x{SIGNER.address.hex()}",
        "samples": samples,
        "data": data,
    }
    assert registration_digest(registration) == typed("Registration", message)


def test_a_challenge_has_the_digest_of_other_tools() -> None:
    nonce = bytes(range(32))
    assert challenge_digest(nonce) == typed("Challenge", {"nonce": nonce})


def test_only_the_client_itself_registers_what_it_signed() -> None:
    registration = Registration("run", Digest(bytes(32)), SIGNER.address, 7)
    signature = SIGNER.sign(registration_digest(registration))
    assert is_registered_by_owner(registration, signature)
    assert not is_registered_by_owner(registration, OTHER.sign(registration_digest(registration)))
    for changed in (
        Registration("other", Digest(bytes(32)), SIGNER.address, 7),
        Registration("run", Digest(b"\1" * 32), SIGNER.address, 7),
        Registration("run", Digest(bytes(32)), OTHER.address, 7),
        Registration("run", Digest(bytes(32)), SIGNER.address, 8),
    ):
        assert not is_registered_by_owner(changed, signature)
    with pytest.raises(SignatureError, match="65 bytes"):
        is_registered_by_owner(registration, signature[:64])


def test_the_registry_digest_is_that_of_one_batch_by_pencil() -> None:
    clients = [RegisteredClient(Address(bytes([i] * 20)), i) for i in (1, 2)]
    words = [int.from_bytes(c.address) << 64 | c.samples for c in clients]
    abi = (64).to_bytes(32) + bytes(32) + (2).to_bytes(32)
    abi += b"".join(word.to_bytes(32) for word in words)
    assert registry_digest_of(clients) == keccak256(abi)


def test_a_salt_is_the_digest_of_a_keys_signature() -> None:
    digest = typed("DataSalt", {"client": f"0x{SIGNER.address.hex()}"})
    assert data_salt(SIGNER) == keccak256(SIGNER.sign(Digest(digest)))
    other = KeySigner((7).to_bytes(32))
    assert data_salt(SIGNER) == data_salt(SIGNER) != data_salt(other)
