"""Typed data and signatures: canonical ones verify, and only where they are meant to."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import coincurve
import pytest
from eth_abi.abi import encode
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol import signing
from ledger.protocol.encoding import keccak256
from ledger.protocol.errors import SignatureError
from ledger.protocol.signing import GROUP_ORDER, KeySigner, is_signed_by, recover, recovered, sign
from ledger.protocol.types import (
    Address,
    ClientId,
    Commitment,
    Digest,
    EnvironmentStatement,
    Phase,
    ReplayStatement,
    Scores,
    Upload,
    Vote,
    VoteKind,
)
from tests.protocol.support import client_ids, digests, signers
from tests.support.keys import DOMAIN, mirrored

DIGEST = Digest(bytes([7]) * 32)
numbers = st.integers(0, 2**64 - 1)
votes = st.builds(
    Vote,
    st.sampled_from(VoteKind),
    numbers,
    st.sampled_from(Phase),
    st.integers(0, 2**32 - 1),
    digests,
    digests,
    digests,
)
messages = st.one_of(
    st.builds(Commitment, numbers, client_ids, digests),
    st.builds(Scores, numbers, client_ids, digests, digests, digests),
    st.builds(Upload, numbers, client_ids, st.text(max_size=40), digests, numbers),
    st.builds(EnvironmentStatement, numbers, client_ids, digests),
    st.builds(ReplayStatement, digests, numbers, client_ids, st.integers(1, 2), digests, digests),
    votes,
)
VOTE = Vote(VoteKind.REQUEST, 3, Phase.AGGREGATION, 1, DIGEST, DIGEST, DIGEST)
SCORES = Scores(1, ClientId(0), DIGEST, DIGEST, DIGEST)


def test_an_address_is_the_end_of_the_public_keys_hash() -> None:
    # Private key 1: the generator itself, whose address is well known.
    signer = KeySigner((1).to_bytes(32))
    assert signer.address.hex() == "7e5f4552091a69125d5dfcb7b8c2659029395bdf"


def test_an_upload_is_hashed_as_eip_712_says() -> None:
    kind = keccak256(b"Upload(uint64 round,uint32 client,string url,bytes32 digest,uint64 size)")
    url = "http://127.0.0.1:8600/ab/cd"
    values = [5, 2, keccak256(url.encode()), DIGEST, 7]
    fields = encode(["uint64", "uint32", "bytes32", "bytes32", "uint64"], values)
    domain = signing.domain_separator(DOMAIN)
    expected = keccak256(b"\x19\x01" + domain + keccak256(kind + fields))
    assert signing.typed_digest(DOMAIN, Upload(5, ClientId(2), url, DIGEST, 7)) == expected


@given(message=messages, key=st.integers(0, 7))
def test_what_is_signed_verifies_for_its_signer_alone(message: signing.Message, key: int) -> None:
    signer, other = signers()[key], signers()[key - 1]
    signature = sign(signer, DOMAIN, message)
    assert is_signed_by(signer.address, DOMAIN, message, signature)
    assert not is_signed_by(other.address, DOMAIN, message, signature)
    assert sign(signer, DOMAIN, message) == signature, "signing is deterministic"


@given(message=messages)
def test_signatures_are_canonical(message: signing.Message) -> None:
    signature = sign(signers()[0], DOMAIN, message)
    assert len(signature) == 65
    assert signature[64] in {27, 28}
    assert 0 < int.from_bytes(signature[32:64]) <= GROUP_ORDER // 2


@given(message=messages)
def test_the_malleated_twin_of_a_signature_is_refused(message: signing.Message) -> None:
    signer = signers()[0]
    twin = mirrored(sign(signer, DOMAIN, message))
    # It is a valid ECDSA signature of the same key: only the rule on s keeps it out.
    digest = signing.typed_digest(DOMAIN, message)
    raw = twin[:64] + bytes([twin[64] - 27])
    key = coincurve.PublicKey.from_signature_and_message(raw, digest, hasher=None)
    assert keccak256(key.format(compressed=False)[1:])[12:] == signer.address
    # The contract's `ecrecover` takes it, and what it found is not taken from the cache here.
    assert recovered(digest, twin) == signer.address
    assert not is_signed_by(signer.address, DOMAIN, message, twin)
    with pytest.raises(SignatureError, match="upper half"):
        recover(digest, twin)


@given(message=messages, place=st.integers(0, 64), mask=st.integers(1, 255))
def test_a_cached_result_is_of_its_own_digest_and_signature(
    message: signing.Message, place: int, mask: int
) -> None:
    signer, signature = signers()[0], sign(signers()[0], DOMAIN, message)
    digest = signing.typed_digest(DOMAIN, message)
    assert recover(digest, signature) == signer.address
    changed = bytearray(signature)
    changed[place] ^= mask
    assert not is_signed_by(signer.address, DOMAIN, message, bytes(changed))
    other = bytearray(digest)
    other[place % 32] ^= mask
    assert recovered(bytes(other), signature) != signer.address


def test_the_cache_of_signatures_is_bounded_and_keeps_failures_too() -> None:
    assert recovered.cache_info().maxsize == 4096
    for _ in range(2):
        assert recovered(bytes(32), bytes(64) + b"\x1b") is None
        with pytest.raises(SignatureError, match="no key"):
            recover(Digest(bytes(32)), bytes(64) + b"\x1b")


@given(message=messages, data=st.data())
def test_a_signature_is_bound_to_chain_contract_and_salt(
    message: signing.Message, data: st.DataObject
) -> None:
    signer = signers()[0]
    signature = sign(signer, DOMAIN, message)
    contract = data.draw(st.binary(min_size=20, max_size=20).map(Address))
    chain = data.draw(st.integers(0, 2**256 - 1))
    salt = data.draw(st.binary(min_size=32, max_size=32).map(Digest))
    for domain in (
        replace(DOMAIN, chain_id=chain),
        replace(DOMAIN, contract=contract),
        replace(DOMAIN, salt=salt),
    ):
        assert is_signed_by(signer.address, domain, message, signature) == (domain == DOMAIN)


@given(signed=messages, claimed=messages)
def test_a_signature_is_bound_to_its_message(
    signed: signing.Message, claimed: signing.Message
) -> None:
    signer = signers()[0]
    signature = sign(signer, DOMAIN, signed)
    assert is_signed_by(signer.address, DOMAIN, claimed, signature) == (signed == claimed)


@pytest.mark.parametrize("message", [VOTE, SCORES], ids=["vote", "scores"])
def test_every_field_is_signed(message: Vote | Scores) -> None:
    signer = signers()[0]
    signature = sign(signer, DOMAIN, message)
    others: dict[type, Any] = {
        VoteKind: VoteKind.REPLY,
        Phase: Phase.ELECTION,
        int: 9,
        bytes: Digest(bytes(32)),
    }
    for field in fields(message):
        other = replace(message, **{field.name: others[type(getattr(message, field.name))]})
        assert not is_signed_by(signer.address, DOMAIN, other, signature), field.name


@pytest.mark.parametrize("length", [0, 64, 66])
def test_a_signature_of_another_length_is_refused(length: int) -> None:
    signature = (sign(signers()[0], DOMAIN, VOTE) + b"\x1b")[:length]
    with pytest.raises(SignatureError, match="65 bytes"):
        recover(DIGEST, signature)


@pytest.mark.parametrize("v", [0, 1, 26, 29, 255])
def test_v_other_than_27_and_28_is_refused(v: int) -> None:
    signature = sign(signers()[0], DOMAIN, VOTE)[:64] + bytes([v])
    with pytest.raises(SignatureError, match="v 27 or 28"):
        recover(DIGEST, signature)


def test_s_at_half_the_order_is_the_largest_allowed() -> None:
    r = sign(signers()[0], DOMAIN, VOTE)[:32]
    half = GROUP_ORDER // 2
    recover(DIGEST, r + half.to_bytes(32) + b"\x1b")
    with pytest.raises(SignatureError, match="upper half"):
        recover(DIGEST, r + (half + 1).to_bytes(32) + b"\x1b")


@pytest.mark.parametrize("r", [0, GROUP_ORDER, 2**256 - 1])
def test_a_signature_that_no_key_made_is_refused(r: int) -> None:
    valid = sign(signers()[0], DOMAIN, VOTE)[:32]
    for values in (r.to_bytes(32) + (1).to_bytes(32), valid + bytes(32)):
        with pytest.raises(SignatureError, match="no key recovers"):
            recover(DIGEST, values + b"\x1b")


@given(place=st.integers(0, 64), flip=st.integers(1, 255))
def test_no_byte_of_a_signature_can_be_changed(place: int, flip: int) -> None:
    signature = bytearray(sign(signers()[0], DOMAIN, VOTE))
    signature[place] ^= flip
    assert not is_signed_by(signers()[0].address, DOMAIN, VOTE, bytes(signature))
