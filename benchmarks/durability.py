"""Cost of durable blobs: synced one by one, and as a group.

`python -m benchmarks.durability` puts 44 blobs of 100 kB, about what a round of the paper's size
publishes, into a fresh folder store: without any sync, with one after each blob, and with one after
all of them, which is what a transaction waits for. `--folder` chooses the disk.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table

from ledger.storage.blobs import FolderBlobs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BLOBS = 44
BLOB_BYTES = 100_000
REPEATS = 15
RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Measure the ways in turn, print and write down what they took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(), help="on the disk to be measured")
    folder = parser.parse_args().folder
    measured_times: dict[str, list[float]] = {name: [] for name in WAYS}
    for repeat in range(REPEATS):
        blobs = _blobs(repeat)
        for name, way in WAYS.items():
            with tempfile.TemporaryDirectory(dir=folder) as place:
                measured_times[name].append(_milliseconds(way, FolderBlobs(Path(place)), blobs))
    rows = [
        {"way": name, "median_ms": median(times), "least_ms": min(times), "most_ms": max(times)}
        for name, times in measured_times.items()
    ]
    table = Table("way", "median ms", "least", "most", title=f"{BLOBS} blobs of {BLOB_BYTES} bytes")
    for row in rows:
        table.add_row(str(row["way"]), *(f"{value:.1f}" for value in list(row.values())[1:]))
    Console().print(table)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "durability.json").write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


def _blobs(seed: int) -> list[bytes]:
    rng = np.random.default_rng(seed)
    return [rng.bytes(BLOB_BYTES) for _ in range(BLOBS)]


def _milliseconds(
    way: Callable[[FolderBlobs, Sequence[bytes]], None], store: FolderBlobs, blobs: Sequence[bytes]
) -> float:
    start = time.perf_counter()
    way(store, blobs)
    return 1e3 * (time.perf_counter() - start)


def _never(store: FolderBlobs, blobs: Sequence[bytes]) -> None:
    for data in blobs:
        store.put(data)


def _singly(store: FolderBlobs, blobs: Sequence[bytes]) -> None:
    for data in blobs:
        store.put(data)
        store.sync()


def _as_group(store: FolderBlobs, blobs: Sequence[bytes]) -> None:
    _never(store, blobs)
    store.sync()


WAYS = {"not synced": _never, "one by one": _singly, "as a group": _as_group}


if __name__ == "__main__":
    main()
