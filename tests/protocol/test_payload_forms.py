"""Payload forms: which payloads are usable updates, and what they say."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from ledger.protocol.encoding import sha256, vector_bytes
from ledger.protocol.payloads import (
    BLOCK,
    FLOAT32,
    LEAST_EXPONENT,
    MOST_EXPONENT,
    MOST_OFFSET,
    NOT_ENCODABLE,
    Q8,
    decode_q8,
    encode_q8,
    q8_size,
)
from tests.protocol.support import f32

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "payload-q8.json").read_text())
SIZES = st.sampled_from([1, 2, 63, 64, 65, 128, 130])
BEYOND = math.ldexp(127.5, MOST_EXPONENT)  # the least number that no encoding holds
NUMBERS = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False).filter(lambda x: abs(x) < BEYOND),
    st.floats(-1, 1, width=32),
    st.integers(-160, 126).map(lambda power: float(np.float32(math.ldexp(1.0, power)))),
    st.integers(-1025, 1025).map(lambda step: step / 8),
)


@st.composite
def updates(draw: st.DrawFn) -> NDArray[np.float32]:
    """Draw an update that can be encoded: sparse or not, of any magnitude."""
    size = draw(SIZES)
    return draw(arrays.arrays(np.float32, size, elements=NUMBERS, fill=st.just(0.0)))


@st.composite
def payloads(draw: st.DrawFn) -> tuple[bytes, int]:
    """Draw bytes of the right length and first byte, and d: most of them are malformed."""
    size = draw(SIZES)
    low = draw(st.integers(-130, 115) | st.just(LEAST_EXPONENT))
    rows = []
    for _ in range(-(-size // BLOCK)):
        offset = draw(st.sampled_from([0, 0, 1, MOST_OFFSET, MOST_OFFSET, 11, 200]))
        number = draw(st.sampled_from([0, 1, 63, 64, 127, -1, -64, -127, -128]))
        place = draw(st.integers(0, BLOCK - 1))
        numbers = bytearray(BLOCK)
        numbers[place] = number % 256
        rows.append(bytes([offset]) + bytes(numbers))
    return raw(2, low, *rows), size


def raw(form: int, low: int, *rows: bytes) -> bytes:
    return bytes([form]) + low.to_bytes(2, signed=True) + b"".join(rows)


def row(offset: int, *numbers: int) -> bytes:
    return bytes([offset, *(number % 256 for number in numbers)]).ljust(1 + BLOCK, b"\0")


def read_independently(data: bytes, dimension: int) -> list[Fraction] | None:
    """Return the numbers of a payload by docs/reference/protocol/encoding.md; None if malformed."""
    blocks = [data[start : start + 65] for start in range(3, len(data), 65)]
    if len(data) < 3 or data[0] != 2 or len(blocks) != math.ceil(dimension / 64):
        return None
    if any(len(block) != 65 for block in blocks):
        return None
    low = int.from_bytes(data[1:3], "big", signed=True)
    signed = [[byte - 256 * (byte > 127) for byte in block[1:]] for block in blocks]
    numbers = [
        Fraction(q) * Fraction(2) ** (low + block[0])
        for block, line in zip(blocks, signed, strict=True)
        for q in line
    ]
    largest = [max(map(abs, line)) for line in signed]
    offsets = [block[0] for block in blocks]
    holds = (
        -126 <= low <= 111
        and all(offset <= 10 for offset in offsets)
        and all(-128 not in line for line in signed)
        and not any(numbers[dimension:])
        and all(q >= 64 or not o for q, o in zip(largest, offsets, strict=True))
        and (max(offsets) == 10 or low == -126)
    )
    return numbers[:dimension] if holds else None


def steps(data: bytes, dimension: int) -> NDArray[np.float64]:
    """Return the distance of the numbers that a payload can express around each number."""
    low = int.from_bytes(data[1:3], "big", signed=True)
    offsets = np.frombuffer(data, np.uint8, offset=3).reshape(-1, 65)[:, 0].astype(int)
    return np.repeat(np.ldexp(1.0, low + offsets), BLOCK)[:dimension]


def test_ties_go_to_the_even_number() -> None:
    payload = encode_q8(f32(100.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5))
    assert payload == raw(2, -10, row(10, 100, 0, 2, 2, 0, -2, -2))
    # 127.5 would round to 128, which is no number: the block takes the next exponent.
    assert encode_q8(f32(127.5, 3.0)) == raw(2, -9, row(10, 64, 2))
    assert encode_q8(f32(127.25, 3.0)) == raw(2, -10, row(10, 127, 3))


@pytest.mark.parametrize("case", VECTORS["updates"], ids=range(len(VECTORS["updates"])))
def test_recorded_payloads_are_read_and_written_to_the_bit(case: dict[str, Any]) -> None:
    payload = bytes.fromhex(case["payload"])
    trained = np.array([float.fromhex(number) for number in case["update"]], np.float32)
    said = [float.fromhex(number) for number in case["says"]]
    assert encode_q8(trained) == payload
    assert decode_q8(payload, len(said)).tolist() == said
    assert read_independently(payload, len(said)) == [Fraction(number) for number in said]


@pytest.mark.parametrize("case", VECTORS["malformed"], ids=lambda case: case["why"])
def test_recorded_malformed_payloads_are_refused(case: dict[str, Any]) -> None:
    payload = bytes.fromhex(case["payload"])
    assert Q8.update_of(payload, case["dimension"]) is None
    assert read_independently(payload, case["dimension"]) is None


@given(payloads())
@example((raw(2, -128, row(10, 64)), 1))
@example((raw(2, 112, row(10, 64)), 1))
def test_exactly_the_canonical_payloads_are_read(drawn: tuple[bytes, int]) -> None:
    payload, dimension = drawn
    numbers = read_independently(payload, dimension)
    update = Q8.update_of(payload, dimension)
    assert (numbers is None) == (update is None)
    if numbers is not None and update is not None:
        assert [Fraction(number) for number in update.tolist()] == numbers
        assert encode_q8(update) == payload


@given(updates())
@example(np.zeros(1, np.float32))
@example(np.full(64, np.nextafter(np.float32(BEYOND), np.float32(0)), np.float32))
@example(np.full(65, 2.0**-149, np.float32))
@example(np.full(64, -127.0, np.float32))
def test_an_update_is_rounded_by_half_a_step_and_only_once(update: NDArray[np.float32]) -> None:
    payload = encode_q8(update)
    assert len(payload) == q8_size(len(update)) == Q8.size(len(update))
    said = decode_q8(payload, len(update))
    assert (np.abs(said.astype(np.float64) - update) <= steps(payload, len(update)) / 2).all()
    assert encode_q8(said) == payload


@given(updates())
def test_every_number_is_zero_or_finite_and_normal(update: NDArray[np.float32]) -> None:
    said = decode_q8(encode_q8(update), len(update))
    assert said.dtype == np.float32
    assert np.isfinite(said).all()
    assert not ((said != 0) & (np.abs(said) < np.finfo(np.float32).tiny)).any()
    assert not np.signbit(said[said == 0]).any()


@given(updates(), st.data())
def test_one_changed_byte_is_refused_or_another_update(
    update: NDArray[np.float32], data: st.DataObject
) -> None:
    payload = bytearray(encode_q8(update))
    place = data.draw(st.integers(0, len(payload) - 1))
    payload[place] ^= data.draw(st.integers(1, 255))
    changed = Q8.update_of(bytes(payload), len(update))
    assert changed is None or changed.tolist() != decode_q8(encode_q8(update), len(update)).tolist()


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, BEYOND, -BEYOND, 3.4e38])
@pytest.mark.parametrize("size", [1, 64, 200])
def test_a_number_that_no_payload_holds_makes_it_malformed(number: float, size: int) -> None:
    update = np.ones(size, np.float32)
    update[-1] = number
    payload = Q8.payload(update)
    assert payload.data == NOT_ENCODABLE
    assert payload.update is None
    assert Q8.update_of(payload.data, size) is None


def test_a_payload_of_four_bytes_a_number_is_usable() -> None:
    payload = FLOAT32.payload(f32(1.0, -2.0))
    assert bytes(payload.data) == vector_bytes(f32(1.0, -2.0))
    assert payload.digest == sha256(payload.data)
    assert payload.size == FLOAT32.size(2) == 8
    assert payload.update is not None
    assert payload.update.tolist() == [1.0, -2.0]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        bytes(7),
        bytes(9),
        bytes(12),
        *(vector_bytes(f32(1.0, value)) for value in (np.nan, np.inf, -np.inf)),
    ],
)
def test_a_payload_of_wrong_length_or_non_finite_is_unusable(payload: bytes) -> None:
    assert FLOAT32.update_of(payload, 2) is None
