"""Documents of JSON types with one thing changed: what a hostile prover may send."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterator
from typing import Any, TypeAlias

FUZZ = 10 if os.environ.get("CMFL_FUZZ") else 1
"""How many times as many cases are tried as in every run of the tests."""

Path: TypeAlias = tuple[str | int, ...]

_ODD: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2**32, 2**64, 10**400, 0.5, math.nan, math.inf),
    *("", "0x", "0x0", "-1", "01", "1e3", "0x" + "00" * 32, "0x" + "ff" * 32, str(2**96 - 1)),
    *(str(2**256), "\x1b[31m<img onerror>\u202e", [], [[]], {}, {"kind": []}),
)


def paths(value: object, here: Path = ()) -> Iterator[Path]:
    """Yield the way to everything in a document, but for the document itself."""
    items: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, one in items:
        yield (*here, key)
        yield from paths(one, (*here, key))


def changed(document: Any, path: Path, rng: random.Random) -> Any:
    """Return the document with one thing changed; what is not on the way there is shared."""
    key: Any = path[0]
    rest = path[1:]
    copy: Any = dict(document) if isinstance(document, dict) else list(document)
    if rest:
        copy[key] = changed(copy[key], rest, rng)
        return copy
    chance = rng.random()
    if chance < 0.1:
        del copy[key]
    elif chance < 0.2 and isinstance(copy, list):
        copy.insert(rng.randrange(len(copy) + 1), copy[key])
    elif chance < 0.3 and isinstance(copy, list):
        other = rng.randrange(len(copy))
        copy[key], copy[other] = copy[other], copy[key]
    elif chance < 0.2:
        copy[f"{key}_"] = copy[key]
    else:
        copy[key] = _other(copy[key], rng)
    return copy


def _other(value: object, rng: random.Random) -> object:
    if rng.random() < 0.3:
        return rng.choice(_ODD)
    match value:
        case bool():
            return not value
        case int():
            return value + rng.choice((-1, 1, 2, 256))
        case float():
            return math.nextafter(value, rng.choice((-math.inf, math.inf)))
        case str() if value.startswith("0x") and len(value) > 2:
            return _other_hex(value, rng)
        case str() if value.isdecimal():
            return str(int(value) + rng.choice((-1, 1, 1 << 32)))
        case str():
            return rng.choice(("used", "not used", "member", "banned", "counted", value.upper()))
        case list():
            return rng.choice((value[1:], value[:-1], value[::-1], [*value, *value], []))
        case _:
            return rng.choice(_ODD)


def _other_hex(value: str, rng: random.Random) -> str:
    place = rng.randrange(2, len(value))
    digit = rng.choice("0123456789abcdef".replace(value[place].lower(), ""))
    flipped = value[:place] + digit + value[place + 1 :]
    return rng.choice((flipped, flipped, flipped, value[:-2], value + "00", value.upper()))
