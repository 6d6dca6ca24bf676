"""A program that trains on two Ray nodes and loses one of them; prints what it found as JSON."""

from __future__ import annotations

import json
import sys
import threading
import time
import warnings
from dataclasses import replace

import ray
import torch
from ray.cluster_utils import Cluster

from clients.training.engine_factory import LocalEngine
from clients.training.port import LocalTraining, TrainedUpdate, TrainingError, Workload
from clients.training.ray_engine import RayEngine
from ledger.protocol.payloads import Q8
from ledger.protocol.rules.distance import plain_distances
from tests.clients.training.made import CONVOLUTIONAL, JOBS, SETS, start_of, workload

NO_LOGS = {"include_log_monitor": False}


def main() -> None:
    warnings.simplefilter("ignore")
    # Long enough that the node that is lost has something to do.
    training = LocalTraining(learning_rate=0.01, batch_size=16, local_steps=100, calibrated=True)
    made = replace(workload(CONVOLUTIONAL, training), form=Q8)
    start = start_of(CONVOLUTIONAL)
    with LocalEngine(made, len(JOBS), plain_distances) as here:
        began = time.monotonic()
        wanted = here.train(start, JOBS)
        seconds = time.monotonic() - began
        measured = here.evaluate(start, tuple(SETS))()
    # Nothing of this needs more cores as it goes on, or to see what the nodes print.
    head = {"num_cpus": 1, "num_gpus": 1, "include_dashboard": False, "no_monitor": True}
    cluster = Cluster(initialize_head=True, head_node_args=head | NO_LOGS)
    lost = cluster.add_node(num_cpus=1, **NO_LOGS)
    with RayEngine(made, 2, plain_distances, cluster.address) as there:
        found = {"with two nodes": is_equal(there.train(start, JOBS), wanted)}
        # Both together need half of what this process needed alone.
        alarm = threading.Timer(seconds / 4, cluster.remove_node, (lost, False))
        alarm.start()
        found["while one is lost"] = is_equal(there.train(start, JOBS), wanted)
        alarm.join()
        found["with one node"] = is_equal(there.train(start, JOBS), wanted)
        found["evaluation"] = there.evaluate(start, tuple(SETS))() == measured
    found["the device is named in the actor"] = is_named_in_actor(made, cluster.address)
    ray.shutdown()
    cluster.shutdown()  # type: ignore[no-untyped-call]
    sys.stdout.write(f"\n{json.dumps(found)}\n")


def is_named_in_actor(made: Workload, address: str) -> bool:
    """Return whether an actor with the head's card, which is on paper, looks for CUDA itself."""
    made = replace(made, device="cuda")
    with RayEngine(made, 1, plain_distances, address) as there:
        try:
            return len(there.train(start_of(CONVOLUTIONAL), JOBS)) == len(JOBS)
        except TrainingError as error:
            return not torch.cuda.is_available() and "CUDA is not available" in str(error)


def is_equal(updates: list[TrainedUpdate], wanted: list[TrainedUpdate]) -> bool:
    """Return whether rounded updates have the wanted bytes, and hold the vector they stand for."""
    return all(
        (one.payload, one.vector.tolist()) == (other.payload, other.vector.tolist())
        and one.payload.update is one.vector
        for one, other in zip(updates, wanted, strict=True)
    )
