"""Seconds of every aggregator on one round of updates, ours or ByzFL's, in this process.

`python -m benchmarks.peers.aggregator_seconds FOLDER WAY` writes `WAY.npz` with the aggregates and
prints one JSON object: CPU and wall seconds of each rule. The ways are "ours", "byzfl on NumPy" and
"byzfl on torch"; the latter two run in ByzFL's environment.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

F = 13
"""Arbitrary updates that the rules tolerate: a fifth of 65."""

RULES: dict[str, dict[str, Any]] = {
    "Krum": {"f": F},
    "MultiKrum": {"f": F},
    "Median": {},
    "TrMean": {"f": F},
    "GeometricMedian": {},
    "CenteredClipping": {"tau": 500.0},
    "Average": {},
    "NNM": {"f": F},
}
"""ByzFL's names and options; NNM is followed by the mean, and is measured with it."""

WAYS = ("ours", "byzfl on NumPy", "byzfl on torch")
SLOW = frozenset({"NNM"})


def main() -> None:
    """Run every rule once on a few numbers and once on all, and report the second."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="where updates.npy is, and the result goes")
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--without", nargs="*", default=[], help="rules to leave out")
    arguments = parser.parse_args()
    updates = np.load(arguments.folder / "updates.npy")
    rules = {name: options for name, options in RULES.items() if name not in arguments.without}
    act = _ours if arguments.way == "ours" else _byzfl(arguments.way, arguments.threads)
    seconds: dict[str, list[float]] = {}
    aggregates: dict[str, Any] = {}
    for name, options in rules.items():
        act(name, options, updates[:, :1000])()
        run = act(name, options, updates)
        cpu, wall = time.process_time(), time.perf_counter()
        aggregate = run()
        seconds[name] = [time.process_time() - cpu, time.perf_counter() - wall]
        aggregates[name] = np.asarray(aggregate)
    np.savez(arguments.folder / f"{arguments.way}.npz", **aggregates)
    print(json.dumps(seconds))


def _ours(name: str, options: dict[str, Any], updates: Any) -> Callable[[], Any]:
    from cmfl import aggregators  # noqa: PLC0415 - not in ByzFL's environment

    if name == "NNM":
        return lambda: aggregators.fedavg(updates, pre=[("NNM", options)])
    if name == "Average":
        return lambda: aggregators.fedavg(updates)
    given = dict(options)
    if name in {"Krum", "MultiKrum"}:  # ByzFL counts one neighbour more
        given["f"] -= 1
    if name == "MultiKrum":
        given["m"] = len(updates) - options["f"]
    return lambda: aggregators.aggregate(name, updates, given)


def _byzfl(way: str, threads: int) -> Callable[[str, dict[str, Any], Any], Callable[[], Any]]:
    import torch  # noqa: PLC0415 - slow, and not needed for ours

    torch.set_num_threads(threads)
    package = _byzfl_package()

    def act(name: str, options: dict[str, Any], updates: Any) -> Callable[[], Any]:
        vectors = torch.from_numpy(updates) if way.endswith("torch") else updates
        rule = getattr(package, name)(**options)
        if name == "NNM":
            return lambda: rule(vectors).mean(0)
        return lambda: rule(vectors)

    return act


def _byzfl_package() -> ModuleType:
    """Return ByzFL's aggregators under an empty parent, which imports no torchvision."""
    specification = importlib.util.find_spec("byzfl")
    assert specification is not None, "byzfl is not installed here: make bench-peers"
    parent = ModuleType("byzfl")
    parent.__path__ = list(specification.submodule_search_locations or ())
    sys.modules["byzfl"] = parent
    return importlib.import_module("byzfl.aggregators")


if __name__ == "__main__":
    main()
