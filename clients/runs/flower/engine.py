"""Training by the nodes of Flower: the engine of a run, and what a node answers it.

Each node is a partition of the clients of its own: client i belongs to the partition with its
remainder. Updates have the same bytes wherever they are trained; evaluation and distances are
computed in the run's process, by the engine that is wrapped. A node trains from settings of its
own.
"""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from clients.configuration.schema import Configuration, MachineSection
from clients.models.model import ParameterVector
from clients.runs.flower.nodes import (
    MAX_OVERHEAD_BYTES,
    NodeDescription,
    NodeFailure,
    NodeQuery,
    Nodes,
    Partitions,
    TrainedPayloads,
    TrainingRequest,
    decode,
    encode,
)
from clients.runs.population import populate, with_training_path
from clients.training.engine_factory import environment_here, run_engine, settled_path
from clients.training.port import (
    Engine,
    PendingEvaluation,
    TrainedUpdate,
    TrainingError,
    TrainingJob,
)
from clients.training.workload import require_jobs
from ledger.io.extras import install_command
from ledger.protocol.encoding import sha256, vector_bytes, vector_from_bytes
from ledger.protocol.errors import CmflError, ConfigurationError, EncodingError
from ledger.protocol.parameters import Parameters
from ledger.protocol.types import Digest

FLWR = "flwr[simulation]==1.41.0"
"""The version that the tests run with."""


def require_flower(*modules: str) -> None:
    """Reject what needs Flower where it is not installed."""
    if any(importlib.util.find_spec(module) is None for module in modules):
        raise ConfigurationError(
            "this needs Flower, whose pins differ from this project's: install both in an "
            f"environment of their own: {install_command('clients')} '{FLWR}'"
        )


@contextmanager
def flower_engine(
    configuration: Configuration, local: Engine, parameters: Parameters, nodes: Nodes | None
) -> Iterator[Engine]:
    """Open the engine.

    Args:
        nodes: those of a ServerApp; None for a simulation that starts with the engine.

    Yields:
        The engine; a simulation of its own ends with the context.
    """
    run = run_digest(configuration)
    if nodes is not None:
        yield FlowerEngine(local, Partitions(nodes, run), run, parameters)
        return
    require_flower("flwr", "ray")
    from clients.runs.flower.grid import simulated_nodes  # noqa: PLC0415 - needs Flower

    with simulated_nodes(configuration) as simulated:
        yield FlowerEngine(local, Partitions(simulated, run), run, parameters)


class FlowerEngine(Engine):
    """Trains on the nodes of Flower.

    Attributes:
        distances: counterpart of `plain_distances`, computed in this process.

    Args:
        run: digest of the settings that an update follows from.
    """

    def __init__(
        self, local: Engine, partitions: Partitions, run: Digest, parameters: Parameters
    ) -> None:
        self.distances = local.distances
        self._local = local
        self._partitions = partitions
        self._run = run
        self._dimension = parameters.dimension
        self._clients = parameters.clients
        self._form = parameters.payload_form

    def train(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> list[TrainedUpdate]:
        require_jobs(start, jobs, self._dimension, self._clients)
        count = self._partitions.count()
        work: defaultdict[int, list[TrainingJob]] = defaultdict(list)
        for job in jobs:
            work[job.client % count].append(job)
        model = vector_bytes(start)
        messages = {
            partition: encode(TrainingRequest(self._run, model, tuple(part)))
            for partition, part in work.items()
        }
        payloads: dict[int, bytes] = {}

        def accept(partition: int, answer: bytes) -> None:
            part = work[partition]
            trained = self._trained(answer, len(part))
            payloads.update(zip((job.client for job in part), trained, strict=True))

        self._partitions.ask(messages, accept)
        return [
            TrainedUpdate.decoded(job.client, payloads[job.client], self._form, self._dimension)
            for job in jobs
        ]

    def evaluate(self, vector: ParameterVector, sets: Sequence[str]) -> PendingEvaluation:
        return self._local.evaluate(vector, sets)

    def close(self) -> None:
        """Close the wrapped engine; the nodes are Flower's."""
        self._local.close()

    def _trained(self, answer: bytes, jobs: int) -> tuple[bytes, ...]:
        size = self._form.size(self._dimension)
        limit = jobs * size + MAX_OVERHEAD_BYTES
        trained: TrainedPayloads | NodeFailure
        trained = decode(answer, limit, TrainedPayloads, NodeFailure)
        if isinstance(trained, NodeFailure):
            raise TrainingError(f"a SuperNode cannot train: {trained.sentence}")
        if len(trained.payloads) != jobs:
            raise EncodingError(f"{jobs} jobs have another answer than {jobs} payloads")
        if any(len(payload) != size for payload in trained.payloads):
            raise EncodingError(f"a payload has another length than {size} bytes")
        return trained.payloads


def run_digest(configuration: Configuration) -> Digest:
    """Return the digest of all settings of a run but those of one machine."""
    machine = MachineSection()
    return sha256(configuration.model_copy(update={"machine": machine}).to_toml().encode())


class TrainingNode:
    """Trains for a ServerApp that has the same settings."""

    def __init__(self, configuration: Configuration, engine: Engine, dimension: int) -> None:
        self._run = run_digest(configuration)
        machine = configuration.machine
        self._environment = environment_here(
            settled_path(configuration), machine.device, machine.isa
        )
        self._engine = engine
        self._dimension = dimension

    @classmethod
    def open(cls, configuration: Configuration) -> Self:
        """Load data and model of a run, and open an engine in this process."""
        population = populate(configuration)
        configuration = with_training_path(configuration, population)
        alone = configuration.machine.model_copy(update={"workers": 1})
        here = configuration.model_copy(update={"machine": alone})
        engine = run_engine(here, population.model, population.data, rows=1)
        return cls(configuration, engine, population.model.dimension)

    def answer(self, message: bytes, partition: int, partitions: int) -> bytes:
        """Return the answer to a message; what goes wrong is said in it.

        Args:
            message: untrusted bytes.
        """
        try:
            limit = 4 * self._dimension + MAX_OVERHEAD_BYTES
            answer = self._answer(message, limit, partition, partitions)
        except (CmflError, ValueError) as error:
            answer = NodeFailure(str(error))
        return encode(answer)

    def close(self) -> None:
        self._engine.close()

    def _answer(
        self, message: bytes, limit: int, partition: int, partitions: int
    ) -> NodeDescription | TrainedPayloads | NodeFailure:
        request: NodeQuery | TrainingRequest = decode(message, limit, NodeQuery, TrainingRequest)
        if request.run != self._run:
            return NodeFailure(
                "the settings of the run differ between ServerApp and SuperNode: install the same "
                "app on both, with the same run.toml and run configuration"
            )
        if isinstance(request, NodeQuery):
            return NodeDescription(partition, partitions, str(self._environment))
        start = vector_from_bytes(request.start, self._dimension)
        trained = self._engine.train(start, request.jobs)
        return TrainedPayloads(tuple(bytes(update.payload.data) for update in trained))
