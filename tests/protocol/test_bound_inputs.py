"""What is bound before a run and stated of it: registrations, code, samples, environments."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
from eth_account.messages import _hash_eip191_message, encode_typed_data
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.protocol import canonical, encoding, inputs
from ledger.protocol.encoding import RegisteredClient, keccak256
from ledger.protocol.errors import EncodingError, SignatureError
from ledger.protocol.inputs import NamedArray
from ledger.protocol.signing import (
    REGISTRATION_TYPES,
    KeySigner,
    Registration,
    challenge_digest,
    data_salt,
    is_registered_by_owner,
    registration_digest,
    registry_digest_of,
)
from ledger.protocol.training_replay import (
    MAX_ENVIRONMENT_TEXT,
    TrainingEnvironment,
    decode_environment,
    encode_environment,
    replay_witness,
)
from ledger.protocol.types import NO_DIGEST, Address, ClientId, Digest

SIGNER = KeySigner(keccak256(b"PUBLIC TEST KEY of an owner"))
OTHER = KeySigner(keccak256(b"PUBLIC TEST KEY of another owner"))


def typed(name: str, message: dict[str, object]) -> bytes:
    """Return the digest that eth-account signs for a message of a domain without a contract."""
    fields = [
        {"type": kind, "name": field}
        for kind, field in (entry.split() for entry in REGISTRATION_TYPES[name].split(","))
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


BIAS = NamedArray("bias", "float32", (2,), np.array([1, -2], dtype="<f4").tobytes())
COUNT = NamedArray("a.count", "int64", (), np.array(3, dtype="<i8").tobytes())
BIAS_BYTES = (
    b"\x00\x00\x00\x04bias"
    b"float32"
    b"\x00\x00\x00\x01"
    b"\x00\x00\x00\x00\x00\x00\x00\x02"
    b"\x00\x00\x80\x3f\x00\x00\x00\xc0"
)
COUNT_BYTES = b"\x00\x00\x00\x07a.countint64\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00"
SALT = bytes(range(32))

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
arrays = st.builds(
    NamedArray,
    names,
    st.sampled_from(["int8", "uint8", "bool"]),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.binary(max_size=4),
).map(lambda array: replace(array, data=bytes(int(np.prod(array.shape, dtype=int)))))


def test_frozen_state_is_hashed_by_name_type_shape_and_numbers() -> None:
    digest = sha256(COUNT_BYTES + BIAS_BYTES).digest()
    assert inputs.frozen_state([COUNT, BIAS]) == digest
    assert inputs.frozen_state([BIAS, COUNT]) == digest, "the names give the order"


def test_no_frozen_state_is_zeros() -> None:
    assert inputs.frozen_state([]) == NO_DIGEST


@given(one=st.lists(arrays, max_size=3), other=st.lists(arrays, max_size=3))
def test_different_frozen_states_have_different_digests(
    one: list[NamedArray], other: list[NamedArray]
) -> None:
    def state(found: list[NamedArray]) -> list[bytes]:
        return sorted(array.head() + bytes(array.data) for array in found)

    one, other = ([*{array.name: array for array in found}.values()] for found in (one, other))
    digests = [inputs.frozen_state(found) for found in (one, other)]
    assert (digests[0] == digests[1]) == (state(one) == state(other))


def test_samples_are_hashed_behind_their_salt() -> None:
    x = NamedArray("x", "uint8", (2, 1), b"\x05\x06")
    y = NamedArray("y", "int64", (2,), np.array([0, 1], dtype="<i8").tobytes())
    assert (
        inputs.samples_digest(SALT, x, y)
        == sha256(
            SALT
            + (b"\x00\x00\x00\x01xuint8\x00\x00\x00\x02")
            + (2).to_bytes(8)
            + (1).to_bytes(8)
            + b"\x05\x06"
            + (b"\x00\x00\x00\x01yint64\x00\x00\x00\x01")
            + (2).to_bytes(8)
            + (0).to_bytes(8, "little")
            + (1).to_bytes(8, "little")
        ).digest()
    )
    assert inputs.samples_digest(bytes(32), x, y) != inputs.samples_digest(SALT, x, y)


def test_a_simulated_clients_salt_follows_from_seed_and_client() -> None:
    salt = inputs.simulated_salt(7, ClientId(3))
    assert salt == sha256(b"data" + (7).to_bytes(8) + (3).to_bytes(4)).digest()


def test_the_data_root_has_a_leaf_of_each_client() -> None:
    digests = [Digest(b"\x01" * 32), NO_DIGEST]
    leaves = [(0, 10, b"\x01" * 32), (1, 20, bytes(32))]
    root = encoding.merkle_root(["uint32", "uint64", "bytes32"], leaves)
    assert inputs.data_root([10, 20], digests) == root
    assert inputs.data_root([20, 10], digests) != root


HERE = TrainingEnvironment("2.13.0+cpu", "plain", "x86_64", "avx2", "cpu", 1)


def test_an_environment_survives_its_encoding() -> None:
    assert decode_environment(encode_environment(HERE)) == HERE


@pytest.mark.parametrize(("threads", "text"), [(1, "1 thread"), (2, "2 threads")])
def test_an_environment_reads_as_one_line(threads: int, text: str) -> None:
    line = f"torch 2.13.0+cpu, plain path, x86_64 avx2, cpu, {text}"
    assert str(replace(HERE, threads=threads)) == line


@pytest.mark.parametrize("field", ["torch", "path", "processor", "isa", "device"])
@pytest.mark.parametrize(
    "text", ["", "a" * (MAX_ENVIRONMENT_TEXT + 1), "line\nbreak", "\x1b[31m", "ä"]
)
def test_a_text_that_a_terminal_must_not_show_is_refused(field: str, text: str) -> None:
    value = canonical.decode(encode_environment(HERE))
    with pytest.raises(EncodingError):
        decode_environment(canonical.encode(value | {field: text}))


@pytest.mark.parametrize(
    "change", [{"version": 1}, {"more": 1}, {"threads": True}, {"isa": b"avx2"}]
)
def test_another_document_is_no_environment(change: dict[str, object]) -> None:
    value = canonical.decode(encode_environment(HERE))
    with pytest.raises(EncodingError):
        decode_environment(canonical.encode(value | change))


def test_two_auditors_have_different_witnesses_of_the_same_losses() -> None:
    losses = bytes(range(8))
    first, second = Address(b"\x01" * 20), Address(b"\x02" * 20)
    assert replay_witness(first, losses) == keccak256(first + hashlib.sha256(losses).digest())
    assert replay_witness(first, losses) != replay_witness(second, losses)


def test_a_packaged_class_is_bound_by_package_version_and_name() -> None:
    digest = inputs.source_of_package("vision", "0.20.1", "vision.models.Net")
    assert digest == sha256(b"vision==0.20.1:vision.models.Net").digest()
