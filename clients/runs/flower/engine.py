"""An engine whose clients are trained by the nodes of Flower, each its own partition of them.

Client i belongs to the partition with its remainder. Updates have the same bytes wherever they are
trained; evaluation and distances are computed in this process, by the engine that is wrapped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from clients.models.model import ParameterVector
from clients.runs.flower.nodes import (
    MAX_OVERHEAD_BYTES,
    NodeFailure,
    Partitions,
    TrainedPayloads,
    TrainingRequest,
    decode_answer,
    encode_request,
)
from clients.training.port import (
    Engine,
    PendingEvaluation,
    TrainedUpdate,
    TrainingError,
    TrainingJob,
)
from clients.training.workload import require_jobs
from ledger.protocol.encoding import vector_bytes
from ledger.protocol.errors import EncodingError
from ledger.protocol.parameters import Parameters
from ledger.protocol.types import Digest


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
        """Return the update of every job; see `Engine.train`."""
        require_jobs(start, jobs, self._dimension, self._clients)
        count = self._partitions.count()
        work: defaultdict[int, list[TrainingJob]] = defaultdict(list)
        for job in jobs:
            work[job.client % count].append(job)
        model = vector_bytes(start)
        messages = {
            partition: encode_request(TrainingRequest(self._run, model, tuple(part)))
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
        """Start to evaluate a parameter vector; see `Engine.evaluate`."""
        return self._local.evaluate(vector, sets)

    def close(self) -> None:
        """Close the wrapped engine; the nodes are Flower's."""
        self._local.close()

    def _trained(self, answer: bytes, jobs: int) -> tuple[bytes, ...]:
        """Return the payloads of an answer."""
        size = self._form.size(self._dimension)
        trained = decode_answer(answer, jobs * size + MAX_OVERHEAD_BYTES)
        if isinstance(trained, NodeFailure):
            raise TrainingError(f"a SuperNode cannot train: {trained.sentence}")
        if not isinstance(trained, TrainedPayloads) or len(trained.payloads) != jobs:
            raise EncodingError(f"{jobs} jobs have another answer than {jobs} payloads")
        if any(len(payload) != size for payload in trained.payloads):
            raise EncodingError(f"a payload has another length than {size} bytes")
        return trained.payloads
