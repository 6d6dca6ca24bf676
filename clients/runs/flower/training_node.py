"""What a ClientApp answers: it trains the clients of its partition, from settings of its own."""

from __future__ import annotations

from typing import Self

from clients.configuration.schema import Configuration, MachineSection
from clients.runs.flower.nodes import (
    MAX_OVERHEAD_BYTES,
    Answer,
    NodeDescription,
    NodeFailure,
    NodeQuery,
    Request,
    TrainedPayloads,
    TrainingRequest,
    decode_request,
    encode_answer,
)
from clients.runs.population import populate, with_training_path
from clients.training.engine_factory import open_engine
from clients.training.environment import environment_here, settled_path
from clients.training.port import Engine
from ledger.protocol.encoding import sha256, vector_from_bytes
from ledger.protocol.errors import CmflError
from ledger.protocol.types import Digest


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
        machine = configuration.machine
        engine = open_engine(
            population.model,
            population.data,
            configuration.local_training(),
            device=machine.device,
            workers=1,
            path=settled_path(configuration),
            sets={},
            rows=1,
            isa=machine.isa,
            form=configuration.protocol.payload_form,
        )
        return cls(configuration, engine, population.model.dimension)

    def answer(self, message: bytes, partition: int, partitions: int) -> bytes:
        """Return the answer to a message; what goes wrong is said in it.

        Args:
            message: untrusted bytes.
        """
        try:
            limit = 4 * self._dimension + MAX_OVERHEAD_BYTES
            answer = self._answer(decode_request(message, limit), partition, partitions)
        except (CmflError, ValueError) as error:
            answer = NodeFailure(str(error))
        return encode_answer(answer)

    def close(self) -> None:
        self._engine.close()

    def _answer(self, request: Request, partition: int, partitions: int) -> Answer:
        if request.run != self._run:
            return NodeFailure(
                "the settings of the run differ between ServerApp and SuperNode: install the same "
                "app on both, with the same run.toml and run configuration"
            )
        if isinstance(request, NodeQuery):
            return NodeDescription(partition, partitions, str(self._environment))
        return TrainedPayloads(self._trained(request))

    def _trained(self, request: TrainingRequest) -> tuple[bytes, ...]:
        start = vector_from_bytes(request.start, self._dimension)
        trained = self._engine.train(start, request.jobs)
        return tuple(bytes(update.payload.data) for update in trained)
