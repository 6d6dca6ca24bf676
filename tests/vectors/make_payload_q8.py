"""Writes `payload-q8.json`: payloads of one byte a number, computed in exact fractions.

    python tests/vectors/make_payload_q8.py

It follows `docs/reference/protocol/encoding.md` and uses the standard library alone.
"""

from __future__ import annotations

import json
import random
import struct
from fractions import Fraction
from pathlib import Path

FILE = Path(__file__).parent / "payload-q8.json"
LEAST, MOST = -126, 121


def power(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


def float32(number: float) -> float:
    (rounded,) = struct.unpack("<f", struct.pack("<f", number))
    return float(rounded)


def needed(block: list[Fraction]) -> int:
    """Return the least exponent with which no number of a block rounds beyond 127."""
    return next(
        exponent
        for exponent in range(LEAST, MOST + 1)
        if all(abs(round(number / power(exponent))) <= 127 for number in block)
    )


def encoded(update: list[float]) -> tuple[bytes, list[float]]:
    """Return the payload of an update, and the numbers that it says."""
    exact = [Fraction(number) for number in update] + [Fraction(0)] * (-len(update) % 64)
    blocks = [exact[start : start + 64] for start in range(0, len(exact), 64)]
    exponents = [needed(block) for block in blocks]
    low = max(max(exponents) - 10, LEAST)
    data, says = struct.pack(">Bh", 2, low), []
    for block, exponent in zip(blocks, exponents, strict=True):
        offset = max(exponent - low, 0)
        numbers = [round(number / power(low + offset)) for number in block]
        data += struct.pack(">B64b", offset, *numbers)
        says += [float(q * power(low + offset)) for q in numbers]
    return data, says[: len(update)]


def updates() -> list[list[float]]:
    rng = random.Random("payload-q8")
    smooth = [[float32(rng.gauss(0, 0.01)) for _ in range(size)] for size in (1, 64, 65, 130)]
    return [
        *smooth,
        [0.0] * 3,
        [float32(rng.gauss(0, 1) * 2.0 ** (-place // 8)) for place in range(192)],
        [127.0] * 64 + [-127.0] * 2,
        [127.5, 127.25, 0.5, 1.5, -2.5],
        [float32(2.0**128 * (1 - 2.0**-8) * (1 - 2.0**-24)), 1.0],
        [2.0**-126, 2.0**-127, 2.0**-149, 3 * 2.0**-127],
        [100.0] + [0.0] * 63 + [0.0625] + [0.0] * 63 + [0.04],
    ]


def malformed() -> list[dict[str, object]]:
    """Return payloads of 65 numbers, each with one fault."""
    good, _ = encoded([float32(place / 65) for place in range(64)] + [2.0**-12])

    def changed(place: int, byte: int) -> bytes:
        return good[:place] + bytes([byte]) + good[place + 1 :]

    cases = {
        "a byte less": good[:-1],
        "a byte more": good + b"\0",
        "another form": changed(0, 1),
        "an exponent below -126": struct.pack(">Bh", 2, -127) + good[3:],
        "an exponent above 111": struct.pack(">Bh", 2, 112) + good[3:],
        "an offset above 10": changed(3, 11),
        "a number of -128": changed(4, 0x80),
        "a number beyond d": changed(70, 1),
        "a lower exponent would do": changed(3, 9),
        "a smaller offset would do": changed(68, 1),
        "zeros with an exponent": struct.pack(">Bh", 2, -10) + bytes(130),
    }
    return [{"why": why, "payload": data.hex(), "dimension": 65} for why, data in cases.items()]


def main() -> None:
    rows = []
    for update in updates():
        data, says = encoded(update)
        rows.append(
            {
                "update": [number.hex() for number in update],
                "payload": data.hex(),
                "says": [number.hex() for number in says],
            }
        )
    FILE.write_text(json.dumps({"updates": rows, "malformed": malformed()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
