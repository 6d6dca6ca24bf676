"""Flower's simulation, begun and ended with a run: `machine.engine = "flower"` without a SuperLink.

Flower runs the ServerApp in a thread; all it does is to hand out its Grid until the run is over.
ClientApps are executed by actors of Ray, which load the run's data and model once.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from queue import SimpleQueue
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from clients.configuration.loading import checked
from clients.configuration.schema import Configuration
from clients.runs.flower.grid_nodes import GridNodes
from clients.runs.flower.training_app import training_app
from clients.runs.flower.training_node import TrainingNode
from clients.training.port import TrainingError
from ledger.io.parsing import parse_toml

_START_SECONDS = 120.0


@contextmanager
def simulated_nodes(configuration: Configuration) -> Iterator[GridNodes]:
    """Simulate a SuperNode for each client of a run, on as many cores as it has workers."""
    app = training_app(_node_of(configuration.to_toml()))
    server, grids, is_over = ServerApp(), SimpleQueue[Any](), threading.Event()

    def hand_out(grid: Grid, context: Context) -> None:  # noqa: ARG001 - Flower's signature
        grids.put(grid)
        is_over.wait()

    server.main()(hand_out)
    with tempfile.TemporaryDirectory(prefix="cmfl-ray-") as folder:
        arguments = {
            "server_app": server,
            "client_app": app,
            "num_supernodes": configuration.protocol.clients,
            "backend_config": {
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
                "init_args": {
                    "num_cpus": configuration.machine.workers,
                    "include_dashboard": False,
                    "_temp_dir": folder,
                },
            },
        }
        thread = threading.Thread(target=_simulate, args=(arguments, grids), name="flower")
        thread.start()
        try:
            grid = grids.get(timeout=_START_SECONDS)
            if isinstance(grid, Exception):
                raise TrainingError(f"Flower's simulation does not start: {grid}") from grid
            yield GridNodes(grid)
        finally:
            is_over.set()
            thread.join()


def _node_of(text: str) -> Callable[[Context], TrainingNode]:
    # The text travels with each message to an actor: the data and the model do not.
    def node(_: Context) -> TrainingNode:
        return _opened(text)

    return node


@cache
def _opened(text: str) -> TrainingNode:
    return TrainingNode.open(checked(parse_toml(text)))


def _simulate(arguments: dict[str, Any], grids: SimpleQueue[Any]) -> None:
    try:
        run_simulation(**arguments)
    except Exception as error:  # noqa: BLE001 - what Flower and Ray raise is not documented
        with suppress(Exception):
            grids.put(error)
