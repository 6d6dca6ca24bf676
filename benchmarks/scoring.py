"""Cost of a round's distances: ours, the ones they replaced, and reading the same updates.

`python -m benchmarks.scoring` compares all 108 updates of a round with its 43 members', squared:
ours on one and on two threads, ours in NumPy without the extra `fast`, the first version's torch
blocks, the authors' double loop of `torch.norm`, the protocol's pair by pair, and reading the
updates' files with a sha256 of each, which an audit needs; then ours by direction.
`--members 6 --trainers 12` measures a small round.
All ways take their turn, `--repeats` times; `--ways direction` takes those with that word in their
name. The slow ones do it for a few of the members, and what they take is multiplied. A product of
two matrices before and after shows whether the machine was shared meanwhile.

It also compares errors with sums in extended precision, for updates that are nearly equal and for
attackers a million times larger, and streams updates of fifty million numbers from files: 108 of
them where the disk has 30 GB left, else 8.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import disk_usage
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.contention import gemm_rate, machine
from ledger.distances.blocked import BlockedSquares
from ledger.distances.composed_rules import distances_by
from ledger.distances.fast import fallback_reason, fast_distances, usable_cores
from ledger.protocol.rules.distance import (
    DIRECTION,
    SQUARED,
    plain_distances,
)
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from ledger.protocol.rules.distance import DistanceRule, Distances, Travel

MEMBERS, TRAINERS = 43, 65
DIMENSIONS = (100_000, 1_000_000, 6_600_000)
LARGE = 50_000_000
LARGE_NEEDS_BYTES = 30 * 10**9
RESULTS = Path(__file__).parents[1] / "docs" / "measured"

Updates = dict[ClientId, "NDArray[np.float32]"]


@dataclass(frozen=True, slots=True)
class ScoringCost:
    """Seconds of one repeat."""

    cpu: float
    wall: float


@dataclass(frozen=True, slots=True)
class ScoredRound:
    """The updates of a round, in memory and in files.

    Attributes:
        updates: of all clients.
        members: those that score.
        files: the same updates, one file each.
    """

    updates: Updates
    members: Sequence[ClientId]
    files: Sequence[Path]


def main() -> None:
    """Measure what the command line asks for, print it and write it down."""
    arguments = _arguments()
    torch.set_num_threads(1)
    document: dict[str, Any] = {
        "machine": machine(),
        "usable cores": usable_cores(),
        "numpy": np.__version__,
        "plain because": fallback_reason(),
        "first distance of a process, s": first_distance(),
        "gemm before, GF/s": gemm_rate(),
        "seconds": [],
    }
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for dimension in arguments.dimensions:
            ways = [name for name in WAYS if any(part in name for part in arguments.ways)]
            round_ = _round_of(dimension, arguments.members, arguments.trainers, Path(folder))
            document["seconds"] += seconds(round_, arguments.repeats, ways)
    document["errors"] = errors()
    if not arguments.without_large:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            document["large"] = large(Path(folder))
    document["gemm after, GF/s"] = gemm_rate()
    for name in ("seconds", "errors"):
        _show(name, document[name])
    Console().print({key: value for key, value in document.items() if not isinstance(value, list)})
    (RESULTS / "scoring.json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")


def seconds(round_: ScoredRound, repeats: int, ways: Sequence[str]) -> list[dict[str, Any]]:
    """Return the median time of each way in one round, and its ratio to the first way's."""
    members = len(round_.members)
    few = {name: min(_FEW.get(name, members), members) for name in ways}
    costs: dict[str, list[ScoringCost]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name in ways:
            way = WAYS[name]
            part = replace(round_, members=round_.members[: few[name]])
            costs[name].append(_taken(lambda way=way, part=part: way(part)))  # type: ignore[misc]
    for file in round_.files:
        file.unlink()
    rows: list[dict[str, Any]] = []
    for name, times in costs.items():
        cpu = median(cost.cpu for cost in times) * members / few[name]
        wall = median(cost.wall for cost in times) * members / few[name]
        row: dict[str, Any] = {"d": len(round_.updates[ClientId(0)]), "way": name}
        row |= {"members timed": few[name], "cpu s": round(cpu, 4), "wall s": round(wall, 4)}
        rows.append({**row, "ratio": round(cpu / (rows[0]["cpu s"] if rows else cpu), 2)})
    return rows


def errors(dimension: int = 200_000) -> list[dict[str, Any]]:
    """Return the largest relative errors of squared distances against extended precision.

    Args:
        dimension: d.
    """
    rng = np.random.default_rng(7)
    base, noise = rng.standard_normal(dimension), rng.standard_normal((8, dimension))
    rows = []
    for spread in (1.0, 1e-3, 1e-6):
        for factor in (1.0, 1e6):
            vectors = (base + spread * noise).astype(np.float32)
            vectors[6:] *= np.float32(factor)
            updates = {ClientId(place): vector for place, vector in enumerate(vectors)}
            row: dict[str, Any] = {"spread": spread, "two clients times": factor}
            exact = _exact(updates)
            for name, way in (
                ("ours", fast_distances()),
                ("pair by pair", plain_distances),
                ("naive float32", _naive),
            ):
                computed = way(SQUARED, None, updates, tuple(updates))
                off = np.abs(computed - exact)[exact > 0] / exact[exact > 0]
                row[name] = f"{off.max():.1e}"
            rows.append(row)
    return rows


def large(folder: Path) -> dict[str, Any]:
    """Return what updates of fifty million numbers take, streamed from files.

    Args:
        folder: where to write them.
    """
    has_room = disk_usage(folder).free >= LARGE_NEEDS_BYTES
    count, members = (MEMBERS + TRAINERS, MEMBERS) if has_room else (8, 3)
    drawn = np.random.default_rng(1).standard_normal(LARGE, dtype=np.float32)
    files = []
    for place in range(count):
        files.append(folder / f"{place}.f32")
        np.roll(drawn, place * 1009).tofile(files[-1])
    del drawn
    mapped = {ClientId(i): np.memmap(file, np.float32, "r") for i, file in enumerate(files)}
    cores = usable_cores()
    anonymous = _anonymous_mib()
    cost = _taken(lambda: fast_distances(cores)(SQUARED, None, mapped, tuple(mapped)[:members]))
    return {
        "d": LARGE,
        "updates": count,
        "members": members,
        "GB": round(count * LARGE * 4 / 1e9, 1),
        "threads": cores,
        "cpu s": round(cost.cpu, 2),
        "wall s": round(cost.wall, 2),
        "memory beside the files, MiB": round(_anonymous_mib() - anonymous, 1),
    }


def first_distance() -> dict[str, float]:
    """Return CPU seconds of a fresh process until it has a first distance, and NumPy's."""
    program = (
        "import time, numpy as np;"
        "from ledger.distances.fast import fast_distances;"
        "from ledger.protocol.rules.distance import SQUARED;"
        "u = {0: np.zeros(9, np.float32)}; t = time.process_time();"
        "fast_distances()(SQUARED, None, u, [0]); first = time.process_time() - t;"
        "t = time.process_time(); fast_distances()(SQUARED, None, u, [0]);"
        "print(first, time.process_time() - t)"
    )
    output = [
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout
        for _ in range(3)
    ]
    first, next_one = (median(float(line.split()[i]) for line in output) for i in (0, 1))
    return {"first": round(first, 4), "second": round(next_one, 6)}


def _ours(threads: int) -> Callable[[ScoredRound], object]:
    distances = fast_distances(threads)
    return lambda one: distances(SQUARED, None, one.updates, one.members)


def _by(distances: Distances) -> Callable[[ScoredRound], object]:
    return lambda one: distances(SQUARED, None, one.updates, one.members)


def _first_version(one: ScoredRound) -> torch.Tensor:
    """Return the distances as the first version had them: float64 differences in torch blocks."""
    updates, members = list(one.updates.values()), torch.arange(len(one.members))
    total = torch.zeros(len(members), len(updates), dtype=torch.float64)
    for first in range(0, len(updates[0]), 2048):
        block = np.stack([update[first : first + 2048] for update in updates])
        deltas = torch.tensor(block).double()
        total += torch.stack([(deltas - row).square_().sum(1) for row in deltas[members]])
    return total


def _naive(
    _rule: DistanceRule,
    _travel: Travel,
    updates: Mapping[ClientId, NDArray[np.float32]],
    members: Sequence[ClientId],
) -> NDArray[np.float64]:
    """Return squared distances as the authors' code takes norms: float32, pair by pair."""
    tensors = {client: torch.from_numpy(update) for client, update in updates.items()}
    rows = [[torch.norm(tensors[k] - tensors[c]).item() for k in updates] for c in members]
    return np.array(rows) ** 2


def _read_and_hashed(one: ScoredRound) -> list[bytes]:
    return [hashlib.sha256(file.read_bytes()).digest() for file in one.files]


def _directions() -> Callable[[ScoredRound], object]:
    """Return ours on one thread for strategy 3, in a round with a displacement."""
    distances = fast_distances(1)

    def way(one: ScoredRound) -> object:
        travel = np.ascontiguousarray(next(reversed(one.updates.values()))[::-1])
        return distances(DIRECTION, travel, one.updates, one.members)

    return way


WAYS: dict[str, Callable[[ScoredRound], object]] = {
    "ours, 1 thread": _ours(1),
    "NumPy blocks": _by(distances_by(BlockedSquares)),
    "first version": _first_version,
    "ours, 2 threads": _ours(2),
    "naive float32 loop": _by(_naive),
    "read and hashed": _read_and_hashed,
    "pair by pair": _by(plain_distances),
    "direction, 1 thread": _directions(),
}
_FEW = {"naive float32 loop": 8, "pair by pair": 1}
"""How many of the members are timed; the time of each is the same. Not so with crowding."""


def _round_of(dimension: int, members: int, trainers: int, folder: Path) -> ScoredRound:
    rng = np.random.default_rng(3)
    updates, files = {}, []
    for place in range(members + trainers):
        updates[ClientId(place)] = rng.standard_normal(dimension, dtype=np.float32)
        files.append(folder / f"{place}.f32")
        updates[ClientId(place)].tofile(files[-1])
    return ScoredRound(updates, tuple(updates)[:members], files)


def _exact(updates: Updates) -> NDArray[np.longdouble]:
    wide = {client: update.astype(np.longdouble) for client, update in updates.items()}
    rows = [[np.square(wide[k] - wide[c]).sum() for k in wide] for c in wide]
    return np.array(rows, dtype=np.longdouble)


def _taken(act: Callable[[], object]) -> ScoringCost:
    cpu, wall = time.process_time(), time.perf_counter()
    act()
    return ScoringCost(time.process_time() - cpu, time.perf_counter() - wall)


def _anonymous_mib() -> float:
    """Return memory of this process that is no file's; on other systems than Linux, its peak."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    [line] = [
        entry for entry in status.read_text("utf-8").splitlines() if entry.startswith("RssAnon")
    ]
    return int(line.split()[1]) / 1024


def _show(name: str, rows: list[dict[str, Any]]) -> None:
    table = Table(*rows[0], title=name)
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console().print(table)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dimensions", type=int, nargs="+", default=DIMENSIONS, help="sizes d")
    parser.add_argument("--members", type=int, default=MEMBERS, help="clients that score")
    parser.add_argument("--trainers", type=int, default=TRAINERS, help="other clients")
    parser.add_argument("--repeats", type=int, default=3, help="turns of each way")
    parser.add_argument("--ways", nargs="+", default=[""], help="parts of the names of ways")
    parser.add_argument("--without-large", action="store_true", help="no files of 200 MB")
    parser.add_argument("--folder", type=Path, default=None, help="where files are written")
    arguments = parser.parse_args()
    if not any(part in name for part in arguments.ways for name in WAYS):
        parser.error(f"--ways: none of {', '.join(WAYS)}")
    if arguments.repeats < 1 or min(arguments.dimensions) < 1:
        parser.error("--repeats and --dimensions must be at least 1")
    return arguments


if __name__ == "__main__":
    main()
