"""Equality of updates across environment classes, and the distance where they differ.

`python -m benchmarks.environments` trains the clients of a round on made samples under each cap of
the instruction set that this processor can do and under none, on each path, in one and two
processes. Updates of a cap are compared with those that were trained uncapped on the same path, and
those of two processes with those of one under the same cap. `--write FILE.npz` keeps them, and
`--against FILE.npz` compares with those that another torch or another machine has kept.

Where bits differ, the median and the largest distance over the clients are given twice, as
`cmfl verify training` gives each: as a share of the update's length, and in units of the median
distance of the round's updates from their mean.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.training import WORKS, made_data
from clients.instruction_sets import available_caps
from clients.models.registry import model_named
from clients.replay.replayed_update import UpdateDifference
from clients.training.engine_factory import open_engine
from clients.training.environment import environment_here
from clients.training.lockstep.execution_plan import plan
from clients.training.port import TrainingJob
from ledger.protocol.encoding import sha256
from ledger.protocol.sampling import training_seed
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from clients.instruction_sets import InstructionSet
    from clients.training.port import TrainingPath

    Updates = dict[str, NDArray[np.float32]]

KINDS = ("digits", "digits cnn", "W1S", "W2")
CLIENTS = 6
"""Clients of a workload that are trained, at most."""
MAX_BYTES = 2**30
UNCAPPED = "uncapped"


def main() -> None:
    """Measure what the command line asks for, print it, and write or compare the updates."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--one-process", action="store_true", help="do not compare two with one")
    parser.add_argument("--write", type=Path, help="file for the updates of one process")
    parser.add_argument("--against", type=Path, help="file that another environment has written")
    arguments = parser.parse_args()
    console = Console(width=150)
    here = environment_here("plain", "cpu")
    console.print(f"torch {here.torch}, {here.processor}, {here.isa}")
    updates: Updates = {}
    table = Table("work", "path", "cap", "against uncapped", "two processes against one")
    for name in arguments.only:
        for row in compared_with_uncapped(name, updates, has_two=not arguments.one_process):
            table.add_row(*row)
    console.print(table)
    if arguments.against is not None:
        console.print(compared_with_file(updates, arguments.against))
    if arguments.write is not None:
        about = np.array(json.dumps({"torch": here.torch, "processor": here.processor}))
        np.savez_compressed(arguments.write, about=about, **updates)  # type: ignore[arg-type]


def compared_with_uncapped(
    name: str, updates: Updates, *, has_two: bool
) -> Iterator[tuple[str, ...]]:
    """Yield a row of each path and cap of a workload; add its updates of one process.

    Args:
        name: of the workload.
        updates: by work, path and cap; added to.
        has_two: whether two processes are compared with one.
    """
    for path in paths_of(name):
        uncapped: NDArray[np.float32] | None = None
        for cap in (None, *available_caps()):
            trained = updates[f"{name}/{path}/{cap or UNCAPPED}"] = trained_updates(name, path, cap)
            uncapped = trained if uncapped is None else uncapped
            cells = [comparison(trained, uncapped) if cap else ""]
            if has_two:
                cells.append(comparison(trained_updates(name, path, cap, processes=2), trained))
            yield (name, path, cap or UNCAPPED, *cells)
    plain, lockstep = (updates.get(f"{name}/{path}/{UNCAPPED}") for path in ("plain", "lockstep"))
    if plain is not None and lockstep is not None:
        yield (name, "lockstep : plain", UNCAPPED, comparison(lockstep, plain))


def compared_with_file(updates: Updates, file: Path) -> Table:
    """Return the comparison with updates of the same work, path and cap from another environment.

    Raises:
        ValueError: the file is too large.
    """
    if file.stat().st_size > MAX_BYTES:
        raise ValueError(f"{file}: more than {MAX_BYTES} bytes")
    with np.load(file, allow_pickle=False) as others:
        about: dict[str, Any] = json.loads(str(others["about"]))
        table = Table("work/path/cap", f"against torch {about['torch']}, {about['processor']}")
        for key in updates:
            if key in others.files:
                table.add_row(key, comparison(updates[key], others[key]))
    return table


def paths_of(name: str) -> list[TrainingPath]:
    """Return the paths that a workload can take."""
    work = WORKS[name]
    model = model_named(work.model, work.form, work.options)
    planned = plan(model, made_data(work), work.settings, "cpu").path
    return ["plain"] if planned == "plain" else ["plain", "lockstep"]


def trained_updates(
    name: str, path: TrainingPath, cap: InstructionSet | None, processes: int = 1
) -> NDArray[np.float32]:
    """Return the updates of a round, shape (clients, d)."""
    work = WORKS[name]
    model = model_named(work.model, work.form, work.options)
    clients = min(CLIENTS, work.clients)
    seed = sha256(b"round 1")
    jobs = [TrainingJob(c, training_seed(seed, ClientId(c))) for c in range(clients)]
    with open_engine(
        model, made_data(work), work.settings,
        device="cpu", workers=processes, path=path, sets={}, rows=clients, isa=cap,
    ) as engine:  # fmt: skip
        trained = engine.train(model.initial(np.random.default_rng(1)), jobs)
        return np.stack([update.vector for update in trained])


def comparison(trained: NDArray[np.float32], others: NDArray[np.float32]) -> str:
    """Return "same", or how many updates differ and how far, in the median and at most."""
    if trained.shape != others.shape:
        return "of another shape"
    differing = [
        UpdateDifference.between(one, other, list(others))
        for one, other in zip(trained, others, strict=True)
        if one.tobytes() != other.tobytes()
    ]
    if not differing:
        return "same"
    shares = [difference.relative or 0.0 for difference in differing]
    spreads = [difference.spread or 0.0 for difference in differing]
    length = f"{median(shares):.0e} to {max(shares):.0e} lengths"
    spread = f"{median(spreads):.0e} to {max(spreads):.0e} spreads"
    return f"{len(differing)} of {len(trained)}: {length}, {spread}"


if __name__ == "__main__":
    main()
