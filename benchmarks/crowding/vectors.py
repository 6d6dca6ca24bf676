"""The rules held to the cases of files such as `tests/vectors/crowd.json`, and such files made."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.crowding.rule import Array, Scores, scores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

LONGEST = 4096
"""Letters of an update from which on a case is left out of an answer."""


def violations(path: Path) -> list[str]:
    """Return where its rule differs from the cases of a file; the file states the margins.

    Raises:
        ValueError: the file is not of that form.
    """
    return _of_each(
        path,
        lambda rule, case: [f"{case['kind']}: {name}" for name in _differences(rule, case)],
    )


def answered(path: Path, rule: str) -> dict[str, Any]:
    """Return the cases of a file with another rule's numbers, but for those of long updates.

    Raises:
        ValueError: the file is not of that form.
    """
    cases = _of_each(
        path,
        lambda _, case: [_answer(rule, case)] if len(case["updates"][0]) < LONGEST else [],
    )
    return {"reference": rule, "cases": cases}


def _of_each(path: Path, results: Callable[[str, dict[str, Any]], list[Any]]) -> list[Any]:
    """Return the results of all cases of a file, of its rule and each case."""
    try:
        file = json.loads(path.read_text("utf-8"))
        return [result for case in file["cases"] for result in results(file["reference"], case)]
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"not cases of a rule ({type(error).__name__}: {error})") from error


def _answer(rule: str, case: dict[str, Any]) -> dict[str, Any]:
    """Return a case with the numbers of a rule in place of its own."""
    updates, seen = _scores(rule, case)
    used = [str(row) for row in np.flatnonzero(np.any(updates, axis=1))]
    return case | {
        "b": seen.b.hex(),
        "base": seen.base.hex(),
        "crowding": dict(zip(used, _hexed(seen.crowding), strict=True)),
        "factor": dict(zip(used, _hexed(seen.crowding_factor), strict=True)),
        "length": _hexed(seen.length_factor),
        "expected": [_hexed(row) for row in seen.distances[:, case["trainers"]]],
    }


def _scores(rule: str, case: dict[str, Any]) -> tuple[Array, Scores]:
    updates = _vectors(case["updates"])
    with np.errstate(over="ignore"):
        travel = (np.subtract(*_vectors([case["model_s"], case["model_t"]]))).astype(float)
    return updates, scores(rule, updates.astype(float), np.array(case["members"]), travel)


def _differences(rule: str, case: dict[str, Any]) -> Iterator[str]:
    """Return the names of the numbers in which a rule differs from a case."""
    updates, seen = _scores(rule, case)
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


def _hexed(numbers: Array) -> list[str]:
    return [float(number).hex() for number in numbers]


def _floats(texts: Iterable[Any]) -> Array:
    """Return numbers of `float.hex()`, or of lists of them."""
    rows = [[text] if isinstance(text, str) else text for text in texts]
    return np.array([[float.fromhex(text) for text in row] for row in rows])
