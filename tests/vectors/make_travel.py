"""Writes `travel-v1.json`: distances along a travel, in decimals of sixty digits.

    python tests/vectors/make_travel.py

It reads section 7 of `docs/protocol.md` and nothing of this project's code; standard library only.
Numbers of the models and updates are multiples of 1/64, which float32 holds exactly, so that the
subtraction of two models is exact too. Clients are numbered from 0 in the order of the updates.
"""

from __future__ import annotations

import json
import random
from decimal import Decimal, getcontext
from pathlib import Path
from typing import Any

getcontext().prec = 60
FILE = Path(__file__).parent / "travel-v1.json"
SLOPE, CAP = Decimal(150), Decimal(3)
Vector = list[Decimal]


def length(vector: Vector) -> Decimal:
    return sum((one * one for one in vector), Decimal(0)).sqrt()


def unit(vector: Vector) -> Vector:
    return [one / length(vector) for one in vector]


def apart(one: Vector, other: Vector) -> Decimal:
    return sum(((a - b) ** 2 for a, b in zip(one, other, strict=True)), Decimal(0))


def median(values: Vector) -> Decimal:
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def multiple(heading: Vector | None, members: list[Vector]) -> Decimal:
    """Return b."""
    asked = [update for update in members if any(update)]
    if heading is None or not asked:
        return Decimal(0)
    agreement = median([1 - apart(unit(update), heading) / 2 for update in asked])
    return min(CAP, SLOPE * max(Decimal(0), agreement))


def distances(travel: Vector, updates: list[Vector], members: int) -> tuple[Decimal, list[Vector]]:
    """Return b, and the distance of every update from each of the first so many."""
    heading = unit(travel) if any(travel) else None
    b = multiple(heading, updates[:members])
    typical = median([length(update) for update in updates])
    rows = []
    for own in updates[:members]:
        row = []
        for update in updates:
            if not any(own) or not any(update):
                row.append(Decimal(4))
                continue
            found = apart(unit(update), unit(own))
            if heading is not None:
                found = (found + b * apart(unit(update), heading)) / (1 + b)
            excess = max(Decimal(1), length(update) / (2 * typical)) if typical else Decimal(1)
            row.append(found * excess * excess)
        rows.append(row)
    return b, rows


def drawn(rng: random.Random, size: int) -> Vector:
    return [Decimal(rng.randrange(-640, 641)) / 64 for _ in range(size)]


def case(
    name: str, seed: int, *, members: int, count: int, lean: str, size: int = 12
) -> dict[str, Any]:
    """Return one case; updates lean along the travel, against it, or not at all."""
    rng = random.Random(seed)
    before, now = drawn(rng, size), drawn(rng, size)
    travel = [a - b for a, b in zip(before, now, strict=True)]
    share = Decimal({"along": 2, "against": -2, "across": 0, "slightly": 0}[lean])
    updates = []
    for _ in range(count):
        own = drawn(rng, size)
        if lean == "slightly":  # a cosine of about .01: b is between 0 and its cap
            part = sum(a * b for a, b in zip(own, travel, strict=True)) / length(travel) ** 2
            wanted = Decimal("0.01") * length(own) / length(travel)
            own = [a + (wanted - part) * v for a, v in zip(own, travel, strict=True)]
        leaning = [a + share * v for a, v in zip(own, travel, strict=True)]
        updates.append([Decimal(round(one * 64)) / 64 for one in leaning])
    if name == "zeros":
        updates[0] = updates[-1] = [Decimal(0)] * size
    if name == "long":
        updates[-1] = [8 * one for one in updates[-1]]
    if name == "all members zeros":
        updates[:members] = [[Decimal(0)] * size for _ in range(members)]
    if name == "unmoved":
        now, travel = before, [Decimal(0)] * size
    b, rows = distances(travel, updates, members)
    return {
        "name": name,
        "before": [float(one) for one in before],
        "now": [float(one) for one in now],
        "members": members,
        "updates": [[float(one) for one in update] for update in updates],
        "multiple": float(b).hex(),
        "expected": [[float(one).hex() for one in row] for row in rows],
    }


def main() -> None:
    """Make all cases."""
    cases = [
        case("along", 1, members=3, count=7, lean="along"),
        case("slightly", 2, members=4, count=8, lean="slightly"),
        case("against", 3, members=3, count=6, lean="against"),
        case("across", 4, members=5, count=9, lean="across"),
        case("zeros", 5, members=4, count=8, lean="slightly"),
        case("long", 6, members=3, count=7, lean="slightly"),
        case("all members zeros", 7, members=3, count=6, lean="along"),
        case("unmoved", 8, members=3, count=6, lean="along"),
    ]
    FILE.write_text(json.dumps({"version": 1, "cases": cases}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
