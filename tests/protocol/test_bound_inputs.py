"""Digests of code, frozen tensors and samples: by pencil, and no two states with one digest."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol import bound_inputs, merkle
from ledger.protocol.bound_inputs import NamedArray
from ledger.protocol.types import NO_DIGEST, ClientId, Digest

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
    assert bound_inputs.frozen_state([COUNT, BIAS]) == digest
    assert bound_inputs.frozen_state([BIAS, COUNT]) == digest, "the names give the order"


def test_no_frozen_state_is_zeros() -> None:
    assert bound_inputs.frozen_state([]) == NO_DIGEST


@given(one=st.lists(arrays, max_size=3), other=st.lists(arrays, max_size=3))
def test_different_frozen_states_have_different_digests(
    one: list[NamedArray], other: list[NamedArray]
) -> None:
    def state(found: list[NamedArray]) -> list[bytes]:
        return sorted(array.head() + bytes(array.data) for array in found)

    one, other = ([*{array.name: array for array in found}.values()] for found in (one, other))
    digests = [bound_inputs.frozen_state(found) for found in (one, other)]
    assert (digests[0] == digests[1]) == (state(one) == state(other))


def test_samples_are_hashed_behind_their_salt() -> None:
    x = NamedArray("x", "uint8", (2, 1), b"\x05\x06")
    y = NamedArray("y", "int64", (2,), np.array([0, 1], dtype="<i8").tobytes())
    assert (
        bound_inputs.samples_digest(SALT, x, y)
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
    assert bound_inputs.samples_digest(bytes(32), x, y) != bound_inputs.samples_digest(SALT, x, y)


def test_a_simulated_clients_salt_follows_from_seed_and_client() -> None:
    salt = bound_inputs.simulated_salt(7, ClientId(3))
    assert salt == sha256(b"data" + (7).to_bytes(8) + (3).to_bytes(4)).digest()


def test_the_data_root_has_a_leaf_of_each_client() -> None:
    digests = [Digest(b"\x01" * 32), NO_DIGEST]
    leaves = [(0, 10, b"\x01" * 32), (1, 20, bytes(32))]
    root = merkle.root(["uint32", "uint64", "bytes32"], leaves)
    assert bound_inputs.data_root([10, 20], digests) == root
    assert bound_inputs.data_root([20, 10], digests) != root
