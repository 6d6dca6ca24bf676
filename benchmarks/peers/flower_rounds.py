"""Flower: FedAvg by two Ray actors, which import this module by its name for the application."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from numpy.typing import NDArray
from torch import nn

from benchmarks import workloads
from benchmarks.workloads import PeerWorkload, module_of, read_workload

FOLDER = "CMFL_BENCH_WORKLOAD"
app = ClientApp()


@functools.cache
def _state() -> tuple[PeerWorkload, nn.Module]:
    torch.set_num_threads(1)
    workload = read_workload(Path(os.environ[FOLDER]))
    return workload, module_of(workload.work)


@app.train()  # type: ignore[untyped-decorator]
def train(message: Message, context: Context) -> Message:
    """Train one client from the parameters of a message, and answer with its own."""
    workload, module = _state()
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    workloads.run_sgd(module, workload, int(context.node_config["partition-id"]))
    arrays = ArrayRecord(module.state_dict())
    metrics = MetricRecord({"num-examples": workload.work.samples})
    return Message(content=RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


class FlowerServer:
    """The server's side of a run; `first` has the parameters after the first round, shape (d,)."""

    def __init__(self, workload: PeerWorkload, rounds: int) -> None:
        self._module = module_of(workload.work)
        workloads.load_flat(self._module, torch.from_numpy(workload.start))
        self._rounds = rounds
        self.clock = workloads.RoundClock()
        self.first: NDArray[np.float32] | None = None

    def main(self, grid: Grid, context: Context) -> None:  # noqa: ARG002 - Flower's signature
        FedAvg(fraction_train=1.0, fraction_evaluate=0.0).start(
            grid=grid,
            initial_arrays=ArrayRecord(self._module.state_dict()),
            num_rounds=self._rounds,
            evaluate_fn=self._lap,
        )

    def _lap(self, number: int, arrays: Any) -> None:
        if number:
            self.clock.stop()
        if number == 1:
            self._module.load_state_dict(arrays.to_torch_state_dict())
            self.first = workloads.flat(self._module)
        self.clock.start()


def main() -> None:
    """Run the rounds and hand in what they took."""
    # Its name, and not `__main__`: Ray's actors import it.
    from benchmarks.peers import flower_rounds  # noqa: PLC0415

    arguments = workloads.contender_arguments()
    workload = read_workload(arguments.work)
    server = FlowerServer(workload, arguments.rounds + 1)
    application = ServerApp()
    application.main()(server.main)
    os.environ[FOLDER] = str(arguments.work)
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        run_simulation(
            server_app=application,
            client_app=flower_rounds.app,
            num_supernodes=len(workload.y),
            backend_config={
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
                "init_args": {"num_cpus": 2, "_temp_dir": folder},
            },
        )
    assert server.first is not None, "a round was run"
    aggregate = workload.start - server.first
    workloads.hand_in(arguments.out, server.clock, aggregate, ["flwr", "ray", "torch"])


if __name__ == "__main__":
    main()
