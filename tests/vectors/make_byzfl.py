"""Writes `byzfl-0.0.11.json`: what the aggregators of ByzFL come to on made-up vectors.

    pip download byzfl==0.0.11 --no-deps --dest FOLDER
    python tests/vectors/make_byzfl.py FOLDER/byzfl-0.0.11-py3-none-any.whl

It was run once; the tests read what is committed. ByzFL's own `__init__` imports torchvision, which
its aggregators do not need: they are loaded under an empty package of that name. All is computed by
NumPy in float64, on numbers that float32 holds exactly.

Where vectors are equally near, ByzFL takes whichever NumPy's partition leaves in front. A case is
kept only if another order of the vectors changes nothing, and so hangs on no such choice.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

OUT = Path(__file__).parent / "byzfl-0.0.11.json"
STEP = 1 / 1024  # made-up numbers are multiples of this, so that the file stays short


def aggregators(wheel: Path) -> ModuleType:
    """Return ByzFL's package of aggregators, under an empty parent."""
    parent = ModuleType("byzfl")
    parent.__path__ = [str(wheel / "byzfl")]
    sys.path.insert(0, str(wheel))
    sys.modules["byzfl"] = parent
    return importlib.import_module("byzfl.aggregators")


def inputs() -> dict[str, NDArray[np.float64]]:
    """Return the vectors, by name, one in each row."""
    rng = np.random.default_rng(11)

    def normal(rows: int, columns: int) -> NDArray[np.float64]:
        return np.round(rng.standard_normal((rows, columns)) / STEP) * STEP

    odd, even = normal(11, 7), normal(10, 5)
    honest = normal(8, 6) + 1
    mean = np.round(honest.mean(axis=0) / STEP) * STEP
    twice = normal(5, 4)
    whole = np.array([[0, 0], [0, 0], [0, 1], [1, 0], [2, 2], [2, 2], [2, 2], [9, -9]], dtype=float)
    return {
        "odd": odd,
        "even": even,
        "twice": np.concatenate([twice, twice[:4]]),
        "whole": whole,
        "reversed": np.concatenate([honest, np.tile(-10 * mean, (3, 1))]),
        "zeros": np.concatenate([honest, np.zeros((3, 6))]),
        "far": np.concatenate([honest, normal(3, 6) * 2.0**40]),
        "huge": np.concatenate([honest, np.full((2, 6), 2.0**120)]),
        "near": np.concatenate([honest, np.tile(mean, (2, 1))]),
    }


PLANS: tuple[tuple[tuple[str, dict[str, Any]], ...], ...] = (
    (("Average", {}),),
    (("Median", {}),),
    *((("TrMean", {"f": f}),) for f in (0, 1, 2, 3)),
    *((("Krum", {"f": f}),) for f in (1, 2, 3)),
    *((("MultiKrum", {"f": f}),) for f in (1, 2, 3)),
    *((("GeometricMedian", {"nu": nu, "T": steps}),) for nu in (0.1, 1e-6) for steps in (1, 3, 20)),
    *((("CenteredClipping", {"tau": tau, "L": s}),) for tau in (0.5, 4.0, 100.0) for s in (1, 5)),
    *((("NNM", {"f": f}),) for f in (0, 1, 3)),
    *((("NNM", {"f": 2}), (name, {"f": 2})) for name in ("TrMean", "Krum", "MultiKrum")),
    (("NNM", {"f": 3}), ("Median", {})),
    (("NNM", {"f": 3}), ("GeometricMedian", {"nu": 0.1, "T": 3})),
)


def outcome(
    package: ModuleType, plan: tuple[tuple[str, dict[str, Any]], ...], vectors: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return what the stages of a plan come to, one after the other."""
    with np.errstate(divide="ignore"):  # a clipped difference of 0
        for name, options in plan:
            vectors = np.asarray(getattr(package, name)(**options)(vectors))
    return vectors


def is_the_same_in_any_order(
    package: ModuleType, plan: tuple[tuple[str, dict[str, Any]], ...], vectors: NDArray[np.float64]
) -> bool:
    """Say whether a plan hangs on no choice between vectors that are equally near."""
    expected = outcome(package, plan, vectors)
    rng = np.random.default_rng(1)
    for _ in range(20):
        order = rng.permutation(len(vectors))
        found = outcome(package, plan, vectors[order])
        wanted = expected[order] if plan[-1][0] == "NNM" else expected
        if not np.allclose(found, wanted, rtol=1e-9, atol=1e-9):
            return False
    return True


def cases(package: ModuleType, vectors: dict[str, NDArray[np.float64]]) -> list[dict[str, Any]]:
    """Return the cases of one round."""
    found = []
    for name, rows in vectors.items():
        for plan in PLANS:
            if 2 * max(options.get("f", 0) for _, options in plan) >= len(rows):
                continue
            if is_the_same_in_any_order(package, plan, rows):
                expected = outcome(package, plan, rows).tolist()
                found.append({"stages": plan, "inputs": name, "expected": expected})
    return found


def clipping(package: ModuleType, vectors: dict[str, NDArray[np.float64]]) -> list[dict[str, Any]]:
    """Return rounds of clipping, each around what the one before came to."""
    clipped = package.CenteredClipping(tau=1.5, L=2)
    rounds = []
    for name in ("reversed", "zeros", "near"):
        expected = np.asarray(clipped(vectors[name])).tolist()
        rounds.append({"inputs": name, "expected": expected})
    return [{"options": {"tau": 1.5, "L": 2}, "rounds": rounds}]


def bucketing(package: ModuleType, vectors: dict[str, NDArray[np.float64]]) -> list[dict[str, Any]]:
    """Return buckets, and the order in which the vectors were dealt."""
    found = []
    for name in ("odd", "even"):
        for size in (1, 2, 3):
            rows = vectors[name]
            np.random.seed(size)  # noqa: NPY002 - the stream that ByzFL draws from
            order = np.random.permutation(np.arange(len(rows))[:, None])[:, 0]  # noqa: NPY002
            np.random.seed(size)  # noqa: NPY002
            expected = np.asarray(package.Bucketing(s=size)(rows))
            found.append(
                {"s": size, "inputs": name, "order": order.tolist(), "expected": expected.tolist()}
            )
    return found


def main(wheel: Path) -> None:
    """Write the file."""
    package, vectors = aggregators(wheel), inputs()
    assert all(np.array_equal(rows, rows.astype(np.float32)) for rows in vectors.values())
    document = {
        "origin": "ByzFL 0.0.11 by NumPy in float64; written by tests/vectors/make_byzfl.py",
        "wheel_sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "inputs": {name: rows.tolist() for name, rows in vectors.items()},
        "aggregations": cases(package, vectors),
        "clipping": clipping(package, vectors),
        "bucketing": bucketing(package, vectors),
    }
    lines = [f' "{key}": {_listed(value)}' for key, value in document.items()]
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def _listed(value: object) -> str:
    if not isinstance(value, list):
        return json.dumps(value)
    return "[\n" + ",\n".join(f"  {json.dumps(one)}" for one in value) + "\n ]"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
