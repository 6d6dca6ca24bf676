"""The Flower client, in its own module so that Ray's actors import and keep it."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from benchmarks.workloads import PeerWorkload, module_of, read_workload, run_sgd

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
    run_sgd(module, workload, int(context.node_config["partition-id"]))
    content = RecordDict(
        {
            "arrays": ArrayRecord(module.state_dict()),
            "metrics": MetricRecord({"num-examples": workload.work.samples}),
        }
    )
    return Message(content=content, reply_to=message)
