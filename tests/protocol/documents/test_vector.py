"""The score vector."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol.documents.vector import (
    MAX_VECTOR_BYTES,
    ScoreVector,
    decode_vector,
    encode_vector,
)
from ledger.protocol.encoding import client_list
from ledger.protocol.errors import EncodingError
from ledger.protocol.types import ClientId
from tests.protocol.documents.changes import KINDS, VECTOR, same
from tests.protocol.support import client_ids, digests
from tests.support.keys import ids

KIND = KINDS["vector"]
anything = st.floats(allow_nan=False)


@st.composite
def vectors(draw: st.DrawFn) -> ScoreVector:
    def ascending() -> tuple[ClientId, ...]:
        return tuple(sorted(draw(st.sets(client_ids, max_size=5))))

    def values(count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.array(draw(st.lists(anything, min_size=count, max_size=count)), dtype=np.float64)

    trainers, members = ascending(), ascending()
    return ScoreVector(
        draw(st.integers(0, 2**64 - 1)),
        draw(client_ids),
        draw(digests),
        trainers,
        values(len(trainers)),
        members,
        values(len(members)),
    )


@given(vector=vectors())
def test_every_score_vector_can_be_read_back(vector: ScoreVector) -> None:
    assert same(decode_vector(encode_vector(vector)), vector)


def test_it_says_whom_it_speaks_of() -> None:
    assert VECTOR.clients == ids(0, 1, 2, 4, 5)
    assert VECTOR.claims() == {4: 0.0, 5: 2.5, 0: 1.0, 2: 1e300}


def test_distances_out_of_range_can_be_read() -> None:
    for value in (np.inf, np.nan, -1.0, -0.0, 2e300):
        odd = replace(VECTOR, distances=np.array([0.0, value]))
        assert not decode_vector(encode_vector(odd)).is_in_range
    assert decode_vector(encode_vector(VECTOR)).is_in_range
    nobody: dict[str, Any] = {"trainers": (), "distances": np.zeros(0)}
    nobody |= {"members": (), "member_distances": np.zeros(0)}
    assert replace(VECTOR, **nobody).is_in_range


@pytest.mark.parametrize(
    ("path", "new", "fact"),
    [
        (("round",), -1, "round -1 is not a whole number of 64 bits"),
        (("member",), 2**32, "is not a whole number of 32 bits"),
        (("base",), bytes(31), "is not 32 bytes"),
        (("trainers",), client_list(ids(5, 4)), "clients are not strictly ascending"),
        (("trainers",), client_list(ids(4, 4)), "clients are not strictly ascending"),
        (("trainers",), bytes(7), "7 bytes are no list of clients"),
        (("trainers",), client_list(ids(4)), "16 bytes are not 1 float64 distances"),
        (("distances",), bytes(15), "15 bytes are not 2"),
        (("members",), client_list(ids(2, 0)), "clients are not strictly ascending"),
        (("member_distances",), bytes(24), "24 bytes are not 2"),
    ],
)
def test_a_score_vector_that_is_not_one_is_refused(
    path: tuple[object, ...], new: object, fact: str
) -> None:
    with pytest.raises(EncodingError, match=fact):
        decode_vector(KIND.changed(path, new))


def test_a_score_vector_has_a_bound_of_its_own() -> None:
    largest = bytes(MAX_VECTOR_BYTES)
    with pytest.raises(EncodingError, match="not a canonical"):
        decode_vector(largest)
    with pytest.raises(EncodingError, match="over the bound of 100000"):
        decode_vector(largest + b"\0")


def test_the_largest_committees_vector_fits() -> None:
    vector = ScoreVector(
        2**64 - 1,
        ClientId(2**32 - 1),
        VECTOR.base,
        ids(*range(256)),
        np.ones(256),
        ids(*range(159)),
        np.ones(159),
    )
    assert len(encode_vector(vector)) < 6_000
