"""Canonical msgpack: one encoding per value, and nothing but `EncodingError` for anything else."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from enum import IntEnum
from itertools import pairwise

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.protocol import canonical
from ledger.protocol.errors import EncodingError
from tests.faults import times
from tests.patience import PATIENCE_SECONDS

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.binary(max_size=8),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)
maps = st.dictionaries(st.text(max_size=4), values, max_size=5)


class Colour(IntEnum):
    RED = 1


def nested(levels: int) -> object:
    """Return a map with lists inside one another, this many levels in all."""
    value: object = 1
    for _ in range(levels - 1):
        value = [value]
    return {"a": value}


def test_maps_are_sorted_by_key() -> None:
    assert canonical.encode({"b": 1, "a": [True, None]}) == b"\x82\xa1a\x92\xc3\xc0\xa1b\x01"
    assert canonical.decode(b"\x82\xa1a\x92\xc3\xc0\xa1b\x01") == {"a": [True, None], "b": 1}


@pytest.mark.parametrize(
    ("data", "flaw"),
    [
        (b"", "nothing at all"),
        (b"\x81\xa1a", "the end is missing"),
        (b"\x80\x80", "bytes after the end"),
        (b"\x82\xa1b\x01\xa1a\x01", "keys not sorted"),
        (b"\x82\xa1a\x01\xa1a\x01", "a key twice"),
        (b"\x81\xa1a\xcc\x01", "a number longer than it need be"),
        (b"\x81\xd9\x01a\x01", "text longer than it need be"),
        (b"\xde\x00\x01\xa1a\x01", "a map header longer than it need be"),
        (b"\x81\xa1a\xca\x3f\x80\x00\x00", "a float32"),
        (b"\x81\xc4\x01a\x01", "a key of bytes"),
        (b"\x82\xc4\x01a\x01\xa1a\x01", "keys of two types"),
        (b"\x81\xa1a\xd4\x05x", "an extension"),
        (b"\x81\xa1a\xa1\xff", "text that is not UTF-8"),
        (b"\x90", "a list"),
        (b"\x81\xa1a\xdd\xff\xff\xff\xff", "a list said to have 2^32 - 1 items"),
        (b"\xdf\xff\xff\xff\xff", "a map said to have 2^32 - 1 items"),
        (b"\x81\xa1a\xc9\xff\xff\xff\xff\x01", "an extension said to be 4 GB"),
    ],
)
def test_anything_but_the_canonical_bytes_is_refused(data: bytes, flaw: str) -> None:
    with pytest.raises(EncodingError) as caught:
        canonical.decode(data)
    assert len(str(caught.value)) < 300, flaw


def test_a_document_at_the_limit_is_read_and_not_beyond() -> None:
    data = canonical.encode({"a": bytes(100)})
    assert canonical.decode(data, len(data)) == {"a": bytes(100)}
    with pytest.raises(EncodingError, match="over the bound of 104"):
        canonical.decode(data, len(data) - 1)
    with pytest.raises(EncodingError, match="over the bound of 1000000"):
        canonical.decode(bytes(canonical.MAX_DOCUMENT_BYTES + 1))


def test_nesting_is_bounded_alike_when_written_and_when_read() -> None:
    deepest = canonical.encode(nested(canonical.MAX_NESTING))
    assert canonical.decode(deepest) == nested(canonical.MAX_NESTING)
    with pytest.raises(ValueError, match="nested deeper than 16"):
        canonical.encode(nested(canonical.MAX_NESTING + 1))
    with pytest.raises(EncodingError, match="nested deeper than 16"):
        canonical.decode(msgpack.packb(nested(canonical.MAX_NESTING + 1)))


@pytest.mark.parametrize("each", [b"\x90", b"\x80", b"\x91\xc0", b"\xc7\x00\x05"])
def test_many_small_things_are_not_read_to_their_end(each: bytes) -> None:
    # A byte of an empty list is 64 in memory, and the collector looks at each of them.
    most = 50_000
    rows = [b"\xdc" + most.to_bytes(2) + each * most] * 4
    data = b"\x81\xa1a\x94" + b"".join(rows)
    tracemalloc.start()
    try:
        with pytest.raises(EncodingError, match=r"more than 65536 maps and lists|extension 5"):
            canonical.decode(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * 2**20


def test_maps_lists_and_their_entries_are_counted() -> None:
    data = canonical.encode({"a": [[], {}], "b": [1, 2, 3]})
    assert canonical.decode(data, containers=5, longest=3)
    with pytest.raises(EncodingError, match="more than 4 maps and lists"):
        canonical.decode(data, containers=4)
    with pytest.raises(EncodingError, match="max_array_len"):
        canonical.decode(data, longest=2)
    with pytest.raises(EncodingError, match="max_map_len"):
        canonical.decode(data, longest=1)
    full = canonical.encode({"a": [None] * canonical.MAX_CONTAINERS})
    assert canonical.decode(full)
    with pytest.raises(EncodingError, match="max_array_len"):
        canonical.decode(canonical.encode({"a": [None] * (canonical.MAX_CONTAINERS + 1)}))


DEEP = """
import itertools, sys
from ledger.protocol import canonical
from ledger.protocol.errors import EncodingError
for limit, head in itertools.product((1_000, 20_000, 10_000_000), (b"\\x91", b"\\x81\\xa1a")):
    sys.setrecursionlimit(limit)
    for levels in (400, 511, 512, 1023, 1025, 30_000, 900_000 // len(head)):
        try:
            canonical.decode(b"\\x81\\xa1a" + head * levels + b"\\x01")
        except EncodingError:
            continue
        sys.exit(f"{levels} levels were read at the limit {limit}")
"""


def test_deep_nesting_is_refused_at_any_recursion_limit() -> None:
    # py-evm raises the limit: RecursionError is no guard, and the stack could overflow instead.
    subprocess.run([sys.executable, "-c", DEEP], check=True, timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize(
    "value",
    [
        {1: 2},
        {b"a": 1},
        {"a": {1: 2}},
        {"a": {1}},
        {"a": Colour.RED},
        {"a": msgpack.ExtType(1, b"")},
    ],
)
def test_what_is_not_plain_data_is_not_written(value: object) -> None:
    with pytest.raises(TypeError, match="is not plain data, or a key is not text"):
        canonical.encode(value)


def test_text_that_is_not_unicode_is_not_written() -> None:
    with pytest.raises(ValueError, match="surrogates not allowed"):
        canonical.encode({"a": "\ud800"})


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1])
def test_an_integer_over_64_bits_is_not_written(value: int) -> None:
    with pytest.raises(OverflowError):
        canonical.encode({"a": value})


@settings(max_examples=times(40, 2_000))
@given(value=maps)
def test_plain_data_can_be_read_back(value: dict[str, object]) -> None:
    assert canonical.decode(canonical.encode(value)) == value


@settings(max_examples=times(40, 2_000))
@given(value=maps, data=st.data())
def test_insertion_order_of_a_map_changes_no_byte(
    value: dict[str, object], data: st.DataObject
) -> None:
    other = dict(data.draw(st.permutations(list(value.items()))))
    assert canonical.encode(other) == canonical.encode(value)


@settings(max_examples=times(100, 20_000))
@given(data=st.binary(max_size=60))
def test_any_readable_bytes_are_the_encoding_of_their_value(data: bytes) -> None:
    try:
        value = canonical.decode(data)
    except EncodingError:
        return
    assert canonical.encode(value) == data


@settings(max_examples=times(60, 5_000))
@given(value=maps, data=st.data())
def test_a_changed_document_is_another_document_or_refused(
    value: dict[str, object], data: st.DataObject
) -> None:
    changed = bytearray(canonical.encode(value))
    place = data.draw(st.integers(0, len(changed) - 1))
    changed[place] ^= data.draw(st.integers(1, 255))
    try:
        found = canonical.decode(bytes(changed))
    except EncodingError:
        return
    assert canonical.encode(found) == changed


@given(st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 9), max_size=6))
def test_packed_clients_ascend_strictly(clients: list[int]) -> None:
    data = b"".join(client.to_bytes(4) for client in clients)
    if all(first < second for first, second in pairwise(clients)):
        assert canonical.packed_clients(data) == tuple(clients)
    else:
        with pytest.raises(EncodingError, match="clients are not strictly ascending"):
            canonical.packed_clients(data)
