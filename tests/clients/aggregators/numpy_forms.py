"""NumPy forms of the aggregators, as their papers define them, and how long both take.

`python -m tests.clients.aggregators.numpy_forms` lets `cmfl.aggregators` and the NumPy forms take
turns on the same float32 updates, on one thread. ByzFL computes these forms on NumPy arrays. They
keep the updates' precision, and do not check that numbers are finite.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import numpy as np

from benchmarks.harness import MEASURED, keep, machine, show
from clients.experiments.report import markdown
from cmfl import aggregators

TURNS = 7
TAU, NU, STEPS = 500.0, 0.1, 3


def centered_clipping(updates: Any) -> Any:
    """Return one step from zeros (Karimireddy, He, Jaggi 2021)."""
    last = np.zeros_like(updates[0])
    differences = updates - last
    kept = np.minimum(1, TAU / np.linalg.norm(differences, axis=1)).astype(updates.dtype)
    return last + (differences * kept[:, None]).mean(axis=0)


def geometric_median(updates: Any) -> Any:
    """Return Weiszfeld's smoothed steps from zeros (Pillutla, Kakade, Harchaoui 2022)."""
    point = np.zeros_like(updates[0])
    for _ in range(STEPS):
        weights = 1 / np.maximum(NU, np.linalg.norm(updates - point, axis=1))
        weights = (weights / weights.sum()).astype(updates.dtype)
        point = (weights[:, None] * updates).sum(axis=0)
    return point


def trimmed_mean(updates: Any) -> Any:
    """Return the mean of the middle three fifths (Yin, Chen, Ramchandran, Bartlett 2018)."""
    f = len(updates) // 5
    return np.sort(updates, axis=0)[f : len(updates) - f].mean(axis=0)


PAIRS: dict[str, tuple[Any, Any]] = {
    "FedAvg": (lambda x: x.mean(axis=0), aggregators.fedavg),
    "CenteredClipping": (centered_clipping, lambda x: aggregators.centered_clipping(x, TAU)),
    "GeometricMedian": (geometric_median, aggregators.geometric_median),
    "TrMean": (trimmed_mean, lambda x: aggregators.trimmed_mean(x, len(x) // 5)),
    "Median": (lambda x: np.median(x, axis=0), aggregators.median),
}
"""The NumPy form of each aggregator, and ours."""


def cpu_seconds(way: Any, updates: Any) -> float:
    begun = time.process_time()
    way(updates)
    return time.process_time() - begun


def main() -> None:
    """Measure every aggregator at every size, and write the table of the page."""
    rows, heads = [], ("aggregator", "n", "d", "NumPy, CPU ms", "here, CPU ms", "times as fast")
    for d, n in ((10**5, 20), (10**5, 50), (10**6, 20), (10**6, 50)):
        updates = np.random.default_rng(3).standard_normal((n, d), dtype=np.float32)
        for name, ways in PAIRS.items():
            cpu_seconds(ways[1], updates[:, :1_000])  # compiles
            turns = [[cpu_seconds(way, updates) for way in ways] for _ in range(TURNS)]
            theirs, ours = (1e3 * median(way) for way in zip(*turns, strict=True))
            figures = f"{theirs:.3g}", f"{ours:.3g}", f"{theirs / ours:.2g}"
            rows.append((name, str(n), f"{d:,}", *figures))
    show([dict(zip(heads, row, strict=True)) for row in rows])
    command = "python -m tests.clients.aggregators.numpy_forms"
    document = {"command": command, "machine": machine(), "table": list(markdown(heads, rows))}
    keep(MEASURED / "aggregators.json", document)


if __name__ == "__main__":
    main()
