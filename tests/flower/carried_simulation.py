"""Owners' workers in this process, and their blobs and mail through Flower's simulation.

`python -m tests.flower.carried_simulation FOLDER` prints whether the heads behind an honest and
behind a lying ServerApp are that of the same run in one process.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import clients.runs.flower  # noqa: F401 - before Flower: it sends no telemetry
from clients.runs.flower.grid_nodes import GridNodes
from clients.worker.carried.app import carried_app
from clients.worker.carried.carrier import Carrier
from ledger.chain.contract.deployment import deployed_domain
from ledger.storage.folder import FolderObjects
from tests.clients.worker.carried.lying import LyingCarrier
from tests.clients.worker.carried.owners import OWNERS, CarriedRun, direct_head

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import Grid

SEED = 0


def main(folder: Path) -> dict[str, bool]:
    """Return whether the heads are equal."""
    expected = direct_head(folder / "direct", SEED)
    return {
        name: _carried_head(folder / name, is_lying=name == "lying") == expected
        for name in ("honest", "lying")
    }


def _carried_head(folder: Path, *, is_lying: bool) -> bytes:
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    heads: list[bytes] = []

    def play(grid: Grid, context: Context) -> None:
        with CarriedRun(folder, SEED) as run:
            nodes, objects = GridNodes(grid), FolderObjects(run.home.blobs)
            carrier = Carrier(nodes, objects, 60.0)
            if is_lying:
                domain = deployed_domain(run.ledger, allow_unknown_creation=False)
                carrier = LyingCarrier(nodes, objects, 60.0, domain, Random(7))
            heads.append(run.play(carrier.exchange))

    server = ServerApp()
    server.main()(play)
    arguments: dict[str, Any] = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": 2, "include_dashboard": False},
    }
    run_simulation(
        server_app=server,
        client_app=carried_app(partial(_folder_of, folder)),
        num_supernodes=OWNERS,
        backend_config=arguments,
    )
    return heads[0]


def _folder_of(folder: Path, context: Context) -> Path:
    return folder / f"carried-{context.node_config['partition-id']}"


if __name__ == "__main__":
    sys.stdout.write(f"{json.dumps(main(Path(sys.argv[1])))}\n")
