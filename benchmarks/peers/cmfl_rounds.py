"""The contender of this project: whole CMFL rounds, as `cmfl run` plays them.

Clients train, payloads are hashed and published, members score, vote and certify, the ledger
decides, and the accepted payloads stay. Variants: "memory" and "chain", the ledger.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.peers.measuring import RoundClock, contender_arguments, hand_in
from benchmarks.workloads import read_workload
from clients.configuration.loading import checked
from clients.runs.open_run import open_memory_run, open_run
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.io.home import Home
from ledger.storage.blobs import FolderBlobs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.workloads import PeerWorkload
    from clients.configuration.schema import Configuration
    from clients.runs.metrics import RoundMetrics
    from clients.runs.open_run import OpenedRun

WORKERS = 2
_NEVER = 2**31 - 1


def main() -> None:
    """Run the rounds and hand in what they took."""
    arguments = contender_arguments()
    workload = read_workload(arguments.work)
    clock, first = RoundClock(), np.empty(0, dtype=np.float32)
    heads: list[str] = []
    with tempfile.TemporaryDirectory(dir=arguments.out) as folder:
        data = Path(folder) / "femnist.npz"
        _write_data(workload, data)
        values = _settings(workload, data, arguments.rounds + 1, arguments.members)
        values["machine"]["ledger"] = arguments.variant
        with _run(Path(folder) / "home", checked(values)) as run:

            def on_round(row: RoundMetrics) -> None:
                nonlocal first
                clock.stop()
                if not row.decided:
                    raise RuntimeError(f"round {row.round} was abandoned: there is nothing to time")
                heads.append(row.head)
                if len(clock.rounds) == 1:
                    first = run.population.initial - run.simulation.model
                clock.start()

            clock.start()
            run.go_on(on_round)
            path = run.configuration.training.path
    hand_in(arguments.out, clock, first, ["torch"], path=path, heads=heads)


def _settings(workload: PeerWorkload, data: Path, rounds: int, members: int) -> dict[str, Any]:
    work, clients = workload.work, len(workload.y)
    return {
        "protocol": {
            "clients": clients,
            "active_rate": 1.0,
            "committee_rate": members / clients,
            "rounds": rounds,
        },
        "data": {"name": "femnist", "path": str(data)},
        "model": {"name": work.model, "options": work.options},
        "training": {
            "learning_rate": work.learning_rate,
            "batch_size": work.batch,
            "local_steps": work.steps,
        },
        "evaluation": {"every": _NEVER},
        "machine": {"workers": WORKERS, "keep": "accepted"},
    }


def _write_data(workload: PeerWorkload, path: Path) -> None:
    """Write the images of a workload as a data set, with one image of each client as its test."""
    clients, samples = workload.y.shape
    images = np.rint(workload.x * 255).astype(np.uint8).reshape(clients, samples, 28, 28)
    labels = workload.y.astype(np.uint8)
    writers = np.arange(clients, dtype=np.int16)
    count = clients * (samples + 1)
    np.savez(
        path,
        image=np.concatenate([images.reshape(-1, 28, 28), images[:, 0]]),
        label=np.concatenate([labels.ravel(), labels[:, 0]]),
        writer=np.concatenate([writers.repeat(samples), writers]),
        is_test=(np.arange(count) >= clients * samples).astype(np.uint8),
        source_file=np.zeros(count, dtype=np.uint8),
    )


@contextmanager
def _run(home: Path, configuration: Configuration) -> Iterator[OpenedRun]:
    home.mkdir()
    if configuration.machine.ledger == "memory":
        with open_memory_run(home, "bench", configuration) as run:
            yield run
        return
    with (
        EmbeddedChain.create(Home(home).chain) as chain,
        open_run(home, "bench", configuration, chain, FolderBlobs(Home(home).blobs)) as run,
    ):
        yield run


if __name__ == "__main__":
    main()
