"""Bytes and digests: fixed widths by eye, and one Keccak-256 for all libraries."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from eth_hash.backends.auto import AutoBackend
from eth_hash.main import Keccak256
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol import encoding
from ledger.protocol.encoding import (
    RegisteredClient,
    checksum,
    eip55,
    keccak,
    prefer_pysha3,
    to_canonical,
)
from ledger.protocol.errors import ChainError, ConfigurationError, EncodingError
from ledger.protocol.types import Address, ClientId
from tests.protocol.support import client_ids, distances, f32
from tests.support.keys import ids


def test_hashes_are_the_published_ones() -> None:
    assert encoding.sha256(b"").hex().startswith("e3b0c442")
    assert encoding.keccak256(b"").hex().startswith("c5d24601")  # not SHA-3, which is a7ffc6f8


def test_integers_have_fixed_widths_and_the_high_byte_first() -> None:
    assert encoding.u32(258) == b"\0\0\1\2"
    assert encoding.u64(258) == b"\0\0\0\0\0\0\1\2"
    assert encoding.client_list(ids(1, 258)) == b"\0\0\0\1\0\0\1\2"


@pytest.mark.parametrize(("encode", "bits"), [(encoding.u32, 32), (encoding.u64, 64)])
def test_an_integer_that_does_not_fit_is_never_cut(encode: object, bits: int) -> None:
    assert callable(encode)
    assert encode(2**bits - 1) == b"\xff" * (bits // 8)
    for value in (2**bits, -1):
        with pytest.raises(OverflowError):
            encode(value)


def test_float_bits_are_those_of_ieee_754() -> None:
    assert encoding.float_bits(0.0) == 0
    assert encoding.float_bits(1.0) == 0x3FF0_0000_0000_0000
    assert encoding.float_bits(float("inf")) == encoding.INFINITY_BITS
    assert encoding.float_from_bits(0x4000_0000_0000_0000) == 2.0


def test_a_ranking_word_is_distance_then_client() -> None:
    assert encoding.ranking_word(1.0, ClientId(7)) == 0x3FF0_0000_0000_0000_0000_0007
    assert encoding.word_client(0x3FF0_0000_0000_0000_0000_0007) == 7
    assert encoding.word_distance(0x3FF0_0000_0000_0000_0000_0007) == 1.0
    largest = encoding.ranking_word(struct.unpack(">d", b"\x7f\xef" + b"\xff" * 6)[0], ClientId(0))
    assert largest >> 32 == encoding.INFINITY_BITS - 1


@pytest.mark.parametrize(
    "distance", [-0.0, -1.0, float("-inf"), float("inf"), float("nan"), -float("nan")]
)
def test_what_is_not_finite_and_positive_has_no_ranking_word(distance: float) -> None:
    with pytest.raises(EncodingError, match="is not finite and >= 0"):
        encoding.ranking_word(distance, ClientId(1))


@given(one=st.tuples(distances, client_ids), other=st.tuples(distances, client_ids))
def test_ranking_words_sort_as_distance_then_client(
    one: tuple[float, ClientId], other: tuple[float, ClientId]
) -> None:
    assert (encoding.ranking_word(*one) < encoding.ranking_word(*other)) == (one < other)


def test_a_registry_word_is_ban_round_address_and_samples() -> None:
    client = RegisteredClient(Address(b"\0" * 19 + b"\2"), 5)
    assert encoding.registry_word(client) == 2 << 64 | 5
    assert encoding.registered_client(2 << 64 | 5) == client
    assert encoding.registered_client(3 << 224 | 2 << 64 | 5) == replace(client, banned_in=3)


@given(
    address=st.binary(min_size=20, max_size=20).map(Address),
    samples=st.integers(0, 2**64 - 1),
    banned_in=st.integers(0, 2**32 - 1),
)
def test_registry_words_can_be_read_back(address: Address, samples: int, banned_in: int) -> None:
    client = RegisteredClient(address, samples, banned_in)
    assert encoding.registered_client(encoding.registry_word(client)) == client


def test_vectors_are_little_endian_float32() -> None:
    assert encoding.vector_bytes(f32(1.0, -2.0)) == b"\0\0\x80\x3f\0\0\0\xc0"
    big_endian = np.array([1.0, -2.0], dtype=">f4")
    assert encoding.vector_bytes(big_endian) == b"\0\0\x80\x3f\0\0\0\xc0"


def test_a_vector_of_another_length_is_refused() -> None:
    assert encoding.vector_from_bytes(bytes(8), 2).tolist() == [0.0, 0.0]
    for size in (0, 7, 9, 12):
        with pytest.raises(EncodingError, match="are not 2 float32 numbers"):
            encoding.vector_from_bytes(bytes(size), 2)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_vector_with_a_non_finite_number_is_refused(value: float) -> None:
    with pytest.raises(EncodingError, match="not finite"):
        encoding.vector_from_bytes(encoding.vector_bytes(f32(1.0, value)), 2)


@given(values=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_vectors_can_be_read_back_bit_for_bit(values: list[float]) -> None:
    data = encoding.vector_bytes(f32(*values))
    vector = encoding.vector_from_bytes(data, len(values))
    assert encoding.vector_bytes(vector) == data
    assert not vector.flags.writeable


@given(data=st.binary(max_size=64), dimension=st.integers(0, 16))
def test_any_bytes_are_a_vector_or_refused(data: bytes, dimension: int) -> None:
    try:
        vector = encoding.vector_from_bytes(data, dimension)
    except EncodingError:
        return
    assert vector.shape == (dimension,)
    assert np.isfinite(vector).all()


EMPTY = "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"
SCRIPT = """
import sys
if sys.argv[1] == "missing":
    sys.modules["sha3"] = None
from ledger.protocol.encoding import keccak
print(keccak.hasher.__module__, keccak(b"").hex(), keccak.new(b"").digest().hex())
"""


def ended(how: str, named: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, how],
        env={**os.environ, "ETH_HASH_BACKEND": named},
        capture_output=True,
        text=True,
        check=False,
    )


def backend_of(how: str, named: str = "") -> list[str]:
    process = ended(how, named)
    assert process.returncode == 0, process.stderr
    return process.stdout.split()


@pytest.mark.parametrize("data", [b"", b"\x00", bytes(135), bytes(136), bytes(137)])
def test_hashes_as_the_other_backend_does(data: bytes) -> None:
    from eth_hash.backends.pycryptodome import backend

    assert keccak(data) == backend.keccak256(data)


def test_takes_pysha3_where_it_is_there() -> None:
    assert backend_of("there") == ["eth_hash.backends.pysha3", EMPTY, EMPTY]


@pytest.mark.parametrize(("how", "named"), [("there", "nonsense"), ("missing", "pysha3")])
def test_an_unavailable_named_backend_is_a_configuration_error(how: str, named: str) -> None:
    last = ended(how, named).stderr.splitlines()[-1]
    assert last.startswith("ledger.protocol.errors.ConfigurationError")
    assert f"ETH_HASH_BACKEND, '{named}'" in last


def test_a_named_backend_is_loaded_at_once_and_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETH_HASH_BACKEND", "pycryptodome")
    named = Keccak256(AutoBackend())
    prefer_pysha3(named)
    assert named.hasher.__module__ != "eth_hash.backends.pysha3"
    monkeypatch.setenv("ETH_HASH_BACKEND", "nonsense")
    with pytest.raises(ConfigurationError, match="nonsense"):
        prefer_pysha3(Keccak256(AutoBackend()))


def test_a_hash_stays_as_it_is_where_pysha3_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETH_HASH_BACKEND", "")
    monkeypatch.setitem(sys.modules, "eth_hash.backends.pysha3", None)
    plain = Keccak256(AutoBackend())
    before = plain.hasher
    prefer_pysha3(plain)
    assert plain.hasher == before


ADDRESS = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"  # the first example of EIP-55


SPELLINGS = [
    ADDRESS,
    ADDRESS.lower(),
    f"0x{ADDRESS[2:].upper()}",
    ADDRESS.upper(),
    f"0X{ADDRESS[2:]}",
    ADDRESS[2:],
    ADDRESS[2:].lower(),
]


@pytest.mark.parametrize("text", SPELLINGS)
def test_one_address_has_many_spellings(text: str) -> None:
    assert checksum(to_canonical(text)) == eip55(text) == ADDRESS


@pytest.mark.parametrize("text", ["0x5aaeb6053F3E94C9b9A09f33669435E7Ef1BeAed", ADDRESS.swapcase()])
def test_a_wrong_checksum_is_refused(text: str) -> None:
    with pytest.raises(ChainError, match="its checksum is wrong"):
        to_canonical(text)


@pytest.mark.parametrize("text", ["0x12", "", "no", f"{ADDRESS}\n", f"0x{ADDRESS}", "\uff10" * 40])
def test_what_is_no_address_at_all_is_refused(text: str) -> None:
    with pytest.raises(ChainError, match="is not an address"):
        to_canonical(text)
