"""What holds for documents of every kind: each can be read back, and nothing else can be read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.protocol import canonical
from ledger.protocol.errors import EncodingError
from tests.faults import times
from tests.protocol.documents.changes import KINDS, Kind, every_place, odd_values, put, same
from tests.protocol.test_canonical import maps

each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@each_kind
def test_it_can_be_read_back(kind: Kind) -> None:
    assert same(kind.decode(kind.data), kind.honest)
    assert kind.encode(kind.decode(kind.data)) == kind.data


@each_kind
def test_a_field_more_or_less_is_refused(kind: Kind) -> None:
    plain = canonical.decode(kind.data)
    with pytest.raises(EncodingError, match="missing or not known"):
        kind.decode(canonical.encode(plain | {"more": 1}))
    for name in plain:
        with pytest.raises(EncodingError, match=name):
            kind.decode(canonical.encode({key: plain[key] for key in plain if key != name}))


@each_kind
@pytest.mark.parametrize("version", [0, 1, 2, 2**32])
def test_another_version_is_refused(kind: Kind, version: int) -> None:
    fact = f"protocol version {version}; this program needs version 3$"
    with pytest.raises(EncodingError, match=fact):
        kind.decode(kind.changed(("version",), version))


@each_kind
def test_a_field_of_another_type_is_refused(kind: Kind) -> None:
    for name, value in canonical.decode(kind.data).items():
        # True is 1 in Python, and is not in msgpack.
        for other in (True, None, "text", 1.5):
            if type(other) is type(value):
                continue
            with pytest.raises(EncodingError, match=f"{name} is not of type"):
                kind.decode(kind.changed((name,), other))


@each_kind
def test_bytes_that_do_not_encode_back_are_refused(kind: Kind) -> None:
    plain = canonical.decode(kind.data)
    assert kind.data[0] == 0x80 | len(plain), "a map of fewer than 16 fields has one byte of head"
    longer = b"\xde" + len(plain).to_bytes(2) + kind.data[1:]
    for other in (longer, kind.data + b"\x00", kind.data[:-1], b"", b"\x80", b"\x90"):
        with pytest.raises(EncodingError):
            kind.decode(other)


@each_kind
def test_nesting_and_size_are_bounded(kind: Kind) -> None:
    with pytest.raises(EncodingError, match="nested deeper than 16"):
        kind.decode(b"\x81\xa1a" + b"\x91" * canonical.MAX_NESTING + b"\x01")
    with pytest.raises(EncodingError, match="over the bound of"):
        kind.decode(bytes(canonical.MAX_DOCUMENT_BYTES + 1))


@each_kind
@settings(max_examples=times(15, 1_000))
@given(noise=st.binary(max_size=80))
def test_any_bytes_are_refused(kind: Kind, noise: bytes) -> None:
    with pytest.raises(EncodingError):
        kind.decode(noise)


@each_kind
@settings(max_examples=times(8, 500))
@given(value=maps)
def test_any_other_map_is_refused(kind: Kind, value: dict[str, object]) -> None:
    with pytest.raises(EncodingError):
        kind.decode(canonical.encode(value))


def is_faithful_or_refused(
    decode: Callable[[bytes], object], encode: Callable[[object], bytes], data: bytes
) -> bool:
    """Say that what can be read has no other encoding, and that an error is one line."""
    try:
        found = decode(data)
    except EncodingError as error:
        return len(str(error)) < 300
    return encode(found) == data


@each_kind
@settings(max_examples=times(25, 2_000))
@given(new=odd_values, draw=st.data())
def test_with_another_value_inside_it_is_read_faithfully_or_refused(
    kind: Kind, new: object, draw: st.DataObject
) -> None:
    plain = canonical.decode(kind.data)
    path = draw.draw(st.sampled_from(every_place(plain)))
    changed = canonical.encode(put(plain, path, new))
    assert is_faithful_or_refused(kind.decode, kind.encode, changed)


@each_kind
@settings(max_examples=times(50, 5_000))
@given(draw=st.data())
def test_with_changed_bytes_it_is_read_faithfully_or_refused(
    kind: Kind, draw: st.DataObject
) -> None:
    changed = bytearray(kind.data)
    for _ in range(draw.draw(st.integers(1, 3))):
        changed[draw.draw(st.integers(0, len(changed) - 1))] ^= draw.draw(st.integers(1, 255))
    assert is_faithful_or_refused(kind.decode, kind.encode, bytes(changed))
