"""Batches and data digest of a client by the protocol's pages, without NumPy and our code.

A second implementation for the tests: PCG64 (XSL-RR 128/64, O'Neill 2014) in plain integers, seeded
as NumPy documents its `SeedSequence`.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from itertools import islice

_WORD = 2**32 - 1
_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645
_POOL = 4


def raw_outputs(seed: int) -> Iterator[int]:
    """Yield the raw 64-bit outputs of a PCG64 with this seed."""
    state, sequence = _pairs(_pool(seed))
    increment = (sequence << 1 | 1) % 2**128
    state = ((state + increment) * _MULTIPLIER + increment) % 2**128
    while True:
        state = (state * _MULTIPLIER + increment) % 2**128
        folded, turn = (state >> 64) ^ (state % 2**64), state >> 122
        yield (folded >> turn | folded << (64 - turn)) % 2**64


def orders(job: bytes, samples: int) -> Iterator[list[int]]:
    """Yield the orders in which a client's samples are gone through."""
    outputs = raw_outputs(int.from_bytes(job, "little"))
    while True:
        keys = list(islice(outputs, samples))
        yield sorted(range(samples), key=keys.__getitem__)


def steps(job: bytes, samples: int, batch_size: int, count: int) -> list[list[int]]:
    """Return the batches of so many local steps."""
    size = min(batch_size, samples)
    sequence = (index for order in orders(job, samples) for index in order)
    return [list(islice(sequence, size)) for _ in range(count)]


def epochs(job: bytes, samples: int, batch_size: int, count: int) -> list[list[int]]:
    """Return the batches of so many local epochs."""
    size = min(batch_size, samples)
    passes = islice(orders(job, samples), count)
    return [order[first : first + size] for order in passes for first in range(0, samples, size)]


def samples_digest(salt: bytes, x: list[list[float]], y: list[int]) -> bytes:
    """Return the digest of float32 inputs and int64 labels under a salt."""
    inputs = struct.pack(f"<{len(x) * len(x[0])}f", *(value for row in x for value in row))
    labels = struct.pack(f"<{len(y)}q", *y)
    head_x, head_y = _head("x", "float32", len(x), len(x[0])), _head("y", "int64", len(y))
    return hashlib.sha256(salt + head_x + inputs + head_y + labels).digest()


def _head(name: str, dtype: str, *sizes: int) -> bytes:
    named = len(name).to_bytes(4) + name.encode() + dtype.encode()
    return named + len(sizes).to_bytes(4) + b"".join(size.to_bytes(8) for size in sizes)


def _pool(seed: int) -> list[int]:
    words = [seed >> 32 * place & _WORD for place in range(max(1, -(-seed.bit_length() // 32)))]
    constant = 0x43B0D7E5

    def hashed(value: int) -> int:
        nonlocal constant
        value ^= constant
        constant = constant * 0x931E8875 & _WORD
        value = value * constant & _WORD
        return value ^ value >> 16

    def mixed(one: int, other: int) -> int:
        value = (one * 0xCA01F9DD - other * 0x4973F715) & _WORD
        return value ^ value >> 16

    pool = [hashed(words[place] if place < len(words) else 0) for place in range(_POOL)]
    for source in range(_POOL):
        for target in range(_POOL):
            if source != target:
                pool[target] = mixed(pool[target], hashed(pool[source]))
    for word in words[_POOL:]:
        for target in range(_POOL):
            pool[target] = mixed(pool[target], hashed(word))
    return pool


def _pairs(pool: list[int]) -> tuple[int, int]:
    constant = 0x8B51F9DD
    words = []
    for place in range(2 * _POOL):
        value = pool[place % _POOL] ^ constant
        constant = constant * 0x58F38DED & _WORD
        value = value * constant & _WORD
        words.append(value ^ value >> 16)
    halves = [words[place] | words[place + 1] << 32 for place in range(0, len(words), 2)]
    return halves[0] << 64 | halves[1], halves[2] << 64 | halves[3]
