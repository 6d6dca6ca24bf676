"""The rule held to the cases of a file such as `tests/vectors/crowd.json`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.crowding.rule import Array, scores

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path


def violations(path: Path) -> list[str]:
    """Return where the rule differs from the cases of a file; the file states the margins.

    Raises:
        ValueError: the file is not of that form.
    """
    try:
        cases = json.loads(path.read_text("utf-8"))["cases"]
        return [f"{case['kind']}: {name}" for case in cases for name in _differences(case)]
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"not cases of the rule ({type(error).__name__}: {error})") from error


def _differences(case: dict[str, Any]) -> Iterator[str]:
    """Return the names of the numbers in which the rule differs from a case."""
    updates = _vectors(case["updates"])
    with np.errstate(over="ignore"):
        travel = (np.subtract(*_vectors([case["model_s"], case["model_t"]]))).astype(float)
    seen = scores("crowd", updates.astype(float), np.array(case["members"]), travel)
    g = np.ones(len(updates))
    g[np.any(updates, axis=1)] = seen.crowding_factor
    of_distances = (1e-10 * g * seen.length_factor)[case["trainers"]]
    for name, ours, theirs, margin in (
        ("b", seen.b, [case["b"]], 1e-12),
        ("base", seen.base, [case["base"]], 1e-12),
        ("crowding", seen.crowding, case["crowding"].values(), 1e-12),
        ("factor", seen.crowding_factor, case["factor"].values(), 0),
        ("length", seen.length_factor, case["length"], 0),
        ("distances", seen.distances[:, case["trainers"]], case["expected"], of_distances),
    ):
        expected = _floats(theirs).reshape(np.shape(ours))
        if not np.all(np.abs(ours - expected) <= 1e-9 * np.abs(expected) + margin):
            yield name


def _vectors(texts: Sequence[str]) -> Array:
    return np.array([np.frombuffer(bytes.fromhex(text[2:]), "<f4") for text in texts])


def _floats(texts: Iterable[Any]) -> Array:
    """Return numbers of `float.hex()`, or of lists of them."""
    rows = [[text] if isinstance(text, str) else text for text in texts]
    return np.array([[float.fromhex(text) for text in row] for row in rows])
