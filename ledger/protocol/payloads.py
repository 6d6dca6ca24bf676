"""Payloads: dense float32 and q8 updates, and bytes with their digest.

A number is q · 2^(lo + offset), with |q| at most 127, the offset of its block at most 10, and the
exponent in [-126, 121]. Every number is therefore 0 or a finite normal float32, so that neither a
rounding nor a processor that flushes subnormals changes it. An update has exactly one encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.encoding import sha256, vector_from_bytes, vector_view
from ledger.protocol.errors import EncodingError
from ledger.protocol.types import Digest


@dataclass(frozen=True, slots=True)
class Payload:
    """A published update, model or record, trusted; bytes from elsewhere go through `of`."""

    data: bytes | memoryview = field(compare=False, repr=False)
    digest: Digest  # sha256 of the data
    update: NDArray[np.float32] | None = field(default=None, compare=False, repr=False)

    @property
    def size(self) -> int:
        return memoryview(self.data).nbytes

    @classmethod
    def of(cls, data: bytes | memoryview) -> Self:
        return cls(data, sha256(data))


FORM = 2  # first byte of the form
BLOCK = 64  # numbers that share an exponent
LEAST_EXPONENT = -126  # of the least normal float32, 2^-126
MOST_EXPONENT = 121  # 127 · 2^121 is the largest number, and 128 · 2^121 is beyond float32
MOST_OFFSET = 10  # down from the largest block's exponent; smaller blocks lose digits
NOT_ENCODABLE = bytes([FORM])  # payload of an update that has no encoding; it is malformed
_HEAD = struct.Struct(">Bh")
_ROW = 1 + BLOCK
_LEAST_LARGEST = 64
_REFUSED = -128
# Fraction of `frexp` from which q = 128 fractions round to 128 (a tie goes to the even number).
_ROUNDS_UP = 127.5 / 128
_FRACTION_BITS = 7
# Blocks at a time, so that temporary arrays stay in the second-level cache: 256 KiB of float32.
_CHUNK = 1024


def q8_size(dimension: int) -> int:
    """Return the bytes of an encoding of d numbers."""
    return _HEAD.size + _ROW * -(-dimension // BLOCK)


def encode_q8(update: NDArray[np.float32]) -> bytes:
    """Return an update of shape (d,), rounded to nearest even; `NOT_ENCODABLE` if out of range."""
    blocks = _padded(update)
    exponents = _needed_exponents(blocks)
    highest = int(exponents.max())
    if highest > MOST_EXPONENT:
        return NOT_ENCODABLE
    low = max(highest - MOST_OFFSET, LEAST_EXPONENT)
    offsets = np.maximum(exponents - low, 0)
    factors = _powers(-(low + offsets))
    data = bytearray(q8_size(len(update)))
    _HEAD.pack_into(data, 0, FORM, low)
    rows = np.frombuffer(data, np.int8, offset=_HEAD.size).reshape(-1, _ROW)
    rows[:, 0] = offsets
    for part in _chunks(len(blocks)):
        # A product with a power of two is exact, unless it is far below a half.
        rows[part, 1:] = np.rint(blocks[part] * factors[part])
    return bytes(data)


def decode_q8(data: bytes | memoryview, dimension: int) -> NDArray[np.float32]:
    """Return the update behind a payload, shape (dimension,), read-only."""
    length = memoryview(data).nbytes
    if length != q8_size(dimension):
        raise EncodingError(f"{length} bytes are not {dimension} numbers of form q8")
    form, low = _HEAD.unpack_from(data)
    if form != FORM:
        raise EncodingError(f"form {form} is not {FORM}")
    if not LEAST_EXPONENT <= low <= MOST_EXPONENT - MOST_OFFSET:
        raise EncodingError(f"lowest exponent {low} is out of range")
    rows = np.frombuffer(data, np.int8, offset=_HEAD.size).reshape(-1, _ROW)
    offsets = rows[:, 0].astype(np.int32)
    if offsets.min() < 0 or offsets.max() > MOST_OFFSET:
        raise EncodingError(f"an offset is not in [0, {MOST_OFFSET}]")
    if rows[-1, _ROW - (len(rows) * BLOCK - dimension) :].any():
        raise EncodingError(f"a number beyond the {dimension} of the update is not 0")
    if low > LEAST_EXPONENT and offsets.max() < MOST_OFFSET:
        raise EncodingError(f"lowest exponent {low}, and no block has offset {MOST_OFFSET}")
    factors = _powers(low + offsets)
    update = np.empty((len(rows), BLOCK), np.float32)
    for part in _chunks(len(rows)):
        numbers = np.ascontiguousarray(rows[part, 1:])
        least = numbers.min(axis=1)
        if least.min() == _REFUSED:
            raise EncodingError(f"a number is {_REFUSED}")
        largest = np.maximum(numbers.max(axis=1), -least)
        if ((largest < _LEAST_LARGEST) & (offsets[part] > 0)).any():
            raise EncodingError(f"a block with an offset has no number of {_LEAST_LARGEST} or more")
        np.multiply(numbers, factors[part], out=update[part])
    vector = update.reshape(-1)[:dimension]
    vector.flags.writeable = False
    return vector


def _padded(update: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return an update as blocks, shape (⌈d / 64⌉, 64), zeros beyond d."""
    if len(update) % BLOCK == 0:
        return np.ascontiguousarray(update, np.float32).reshape(-1, BLOCK)
    blocks = np.zeros((-(-len(update) // BLOCK), BLOCK), np.float32)
    blocks.reshape(-1)[: len(update)] = update
    return blocks


def _needed_exponents(blocks: NDArray[np.float32]) -> NDArray[np.int32]:
    """Return each block's least exponent that lets its numbers round to 127 at most."""
    largest = np.empty(len(blocks), np.float32)
    for part in _chunks(len(blocks)):
        largest[part] = np.maximum(blocks[part].max(axis=1), -blocks[part].min(axis=1))
    fractions, exponents = np.frexp(largest)
    needed = exponents - _FRACTION_BITS + (fractions >= _ROUNDS_UP)
    needed[largest == 0] = LEAST_EXPONENT
    needed[~np.isfinite(largest)] = MOST_EXPONENT + 1
    clipped: NDArray[np.int32] = np.maximum(needed, LEAST_EXPONENT).astype(np.int32)
    return clipped


def _powers(exponents: NDArray[Any]) -> NDArray[np.float32]:
    """Return 2 to each exponent, all of normal float32 numbers, shape (blocks, 1)."""
    powers: NDArray[np.float32] = np.ldexp(np.float32(1), exponents)[:, np.newaxis]
    return powers


def _chunks(blocks: int) -> Iterator[slice]:
    return (slice(start, start + _CHUNK) for start in range(0, blocks, _CHUNK))


@dataclass(frozen=True, slots=True)
class PayloadForm:
    """A form of payloads; of an update that it cannot hold `encode` makes a malformed payload."""

    name: str
    size: Callable[[int], int]  # from d to the bytes of a payload
    encode: Callable[[NDArray[np.float32]], bytes | memoryview]
    decode: Callable[[bytes | memoryview, int], NDArray[np.float32]]  # read-only; EncodingError
    sentence: str

    def update_of(self, payload: bytes | memoryview, dimension: int) -> NDArray[np.float32] | None:
        """Return the update behind a payload, shape (d,); None if it is malformed."""
        try:
            return self.decode(payload, dimension)
        except EncodingError:
            return None

    def payload(self, update: NDArray[np.float32]) -> Payload:
        """Return the payload of an update of shape (d,), with the update that it says."""
        data = self.encode(update)
        return Payload(data, sha256(data), self.update_of(data, len(update)))


def _float32_size(dimension: int) -> int:
    return 4 * dimension


FLOAT32 = PayloadForm(
    "float32", _float32_size, vector_view, vector_from_bytes, "four bytes per number, as trained"
)
Q8 = PayloadForm(
    "q8", q8_size, encode_q8, decode_q8, "one byte per number, and one scale byte per 64 numbers"
)

PAYLOAD_FORMS = {form.name: form for form in (FLOAT32, Q8)}
