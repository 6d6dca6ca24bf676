"""Training by the nodes of Flower: messages, partitions, the engine, and what a node answers.

Each node has a partition of the clients: client i belongs to the partition with its remainder. A
killed SuperNode comes back as another node with the same partition, and gets the work of the lost
one. Evaluation and distances are computed in the run's process.

Flower carries each message as one array of bytes. Both sides read untrusted bytes: of another
version, of another run, or of a node that sends something else. Only `flower_grid` imports Flower.
"""

from __future__ import annotations

import importlib.util
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Any, Protocol

from pydantic import AfterValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from clients.configuration.schema import Configuration, MachineSection
from clients.models.model import ParameterVector
from clients.runs.population import populate, with_training_path
from clients.training.engine_factory import environment_here, run_engine, settled_path
from clients.training.port import (
    Engine,
    PendingEvaluation,
    TrainedUpdate,
    TrainingError,
    TrainingJob,
    require_jobs,
)
from ledger.io.extras import install_command
from ledger.protocol import canonical
from ledger.protocol.encoding import sha256, vector_bytes, vector_from_bytes
from ledger.protocol.errors import CmflError, ConfigurationError, EncodingError
from ledger.protocol.types import Digest

_log = logging.getLogger(__name__)

VERSION = 1
MAX_OVERHEAD_BYTES = 1 << 20  # of a message beside models and payloads: 16,384 jobs take 0.7 MB
MAX_SENTENCE = 500
_STRICT = ConfigDict(strict=True, extra="forbid")
_List = Field(strict=False)  # a tuple is a list in a message
_Octets32 = Annotated[bytes, Field(min_length=32, max_length=32)]
_Sentence = Annotated[str, AfterValidator(lambda text: " ".join(text.split())[:MAX_SENTENCE])]


@dataclass(frozen=True, slots=True, config=_STRICT)
class NodeQuery:
    """A question to a node that has just connected, with the `run_digest`."""

    run: _Octets32


@dataclass(frozen=True, slots=True, config=_STRICT)
class NodeDescription:
    """The answer of a node, which trains the clients whose remainder is its partition, from 0."""

    partition: int
    partitions: int
    environment: _Sentence

    def __post_init__(self) -> None:
        if not 0 <= self.partition < self.partitions:
            raise ValueError(f"partition {self.partition} of {self.partitions}")


@dataclass(frozen=True, slots=True, config=_STRICT)
class TrainingRequest:
    """Clients to be trained from w_t, little-endian float32, each with the seed of its job."""

    run: _Octets32
    start: bytes
    clients: Annotated[tuple[int, ...], _List]
    seeds: Annotated[tuple[_Octets32, ...], _List]

    def __post_init__(self) -> None:
        if len(self.clients) != len(self.seeds):
            raise ValueError(f"{len(self.clients)} clients and {len(self.seeds)} seeds")


@dataclass(frozen=True, slots=True, config=_STRICT)
class TrainedPayloads:
    """The answer of a node that has trained; its payloads are in the order of the jobs."""

    payloads: Annotated[tuple[bytes, ...], _List]


@dataclass(frozen=True, slots=True, config=_STRICT)
class NodeFailure:
    """The answer of a node that cannot do what it is asked, with the reason."""

    sentence: _Sentence


_KINDS: dict[str, type[Any]] = {
    "query": NodeQuery,
    "train": TrainingRequest,
    "node": NodeDescription,
    "trained": TrainedPayloads,
    "failed": NodeFailure,
}


def encode(message: object) -> bytes:
    """Return the bytes of a request to a node, or of its answer."""
    kind = next(name for name, one in _KINDS.items() if type(message) is one)
    document: dict[str, object] = {"version": VERSION, "kind": kind}
    for field in fields(_KINDS[kind]):
        value = getattr(message, field.name)
        document[field.name] = list(value) if isinstance(value, tuple) else value
    return canonical.encode(document)


def decode(data: bytes, limit: int, *kinds: type[Any]) -> Any:
    """Return the message of one of these kinds that untrusted bytes hold."""
    values = canonical.decode(data, limit, containers=3)
    kind = values.pop("kind", None)
    if values.pop("version", None) != VERSION or not isinstance(kind, str):
        raise EncodingError(f"a message has version {VERSION} and a kind")
    if _KINDS.get(kind) not in kinds:
        raise EncodingError(f"a message of kind {kind:.40} is not expected here")
    try:
        return _KINDS[kind](**values)
    except (ValidationError, TypeError) as error:
        raise EncodingError(f"a message of kind {kind} has other fields") from error


NODE_SECONDS = 600.0  # how long a call waits without any answer
MOST_FAILURES = 3
"""Failed messages for one partition, one after another, after which a call fails; and failed
questions to one node, after which it is not asked what it is until it connects anew."""

_POLL_SECONDS = 0.2


class UnansweredError(EncodingError):
    """Flower has no answer to a message, and gives a reason."""


class Nodes(Protocol):
    """The nodes that are connected, and messages to them; TrainingError if Flower itself fails."""

    def online(self) -> Collection[int]:
        """Return the numbers of the connected nodes."""

    def send(self, node: int, message: bytes) -> str:
        """Send a message, and return the name of its answer."""

    def answers(self, names: Collection[str]) -> Mapping[str, bytes | UnansweredError]:
        """Return the answers that have come, by the name of the message."""


class Partitions:
    """The nodes by their partition, and requests to several of them."""

    def __init__(self, nodes: Nodes, run: Digest) -> None:
        self._nodes, self._run = nodes, run
        self._asked: dict[str, int] = {}
        self._mute: dict[int, int] = {}
        self._node_of: dict[int, int] = {}
        self._descriptions: dict[int, NodeDescription] = {}

    def count(self) -> int:
        waiting = _Patience()
        while not self._descriptions:
            if not self._describe():
                waiting.pause("no SuperNode")
        return next(iter(self._descriptions.values())).partitions

    def ask(self, messages: Mapping[int, bytes], accept: Callable[[int, bytes], None]) -> None:
        """Send a message to each partition, again if its node is lost, until one is accepted."""
        left = dict(messages)
        sent: dict[str, tuple[int, int]] = {}
        failures = dict.fromkeys(messages, 0)
        waiting = _Patience()
        while left:
            if self._describe():
                waiting.reset()
            sent = {n: (p, node) for n, (p, node) in sent.items() if self._node_of.get(p) == node}
            busy = {partition for partition, _ in sent.values()}
            for partition in left.keys() - busy:
                node = self._node_of.get(partition)
                if node is not None:
                    sent[self._nodes.send(node, left[partition])] = partition, node
            for name, answer in self._nodes.answers(tuple(sent)).items():
                partition, node = sent.pop(name)
                waiting.reset()
                try:
                    accept(partition, _answered(answer))
                    del left[partition]
                except EncodingError as error:
                    failures[partition] += 1
                    _log.warning("node %d, partition %d: %s", node, partition, error)
                    if failures[partition] >= MOST_FAILURES:
                        message = f"SuperNode of partition {partition} failed: {error}"
                        raise TrainingError(message) from error
            if left:
                waiting.pause(f"no SuperNode of partition {', '.join(map(str, sorted(left)))}")

    def _describe(self) -> bool:
        online = set(self._nodes.online())
        self._descriptions = {n: one for n, one in self._descriptions.items() if n in online}
        self._node_of = {p: node for p, node in self._node_of.items() if node in online}
        self._asked = {name: node for name, node in self._asked.items() if node in online}
        self._mute = {node: failed for node, failed in self._mute.items() if node in online}
        given_up = {node for node, failed in self._mute.items() if failed >= MOST_FAILURES}
        query = encode(NodeQuery(self._run))
        known = self._descriptions.keys() | set(self._asked.values()) | given_up
        for node in sorted(online - known):
            self._asked[self._nodes.send(node, query)] = node
        has_answered = False
        for name, answer in self._nodes.answers(tuple(self._asked)).items():
            node = self._asked.pop(name)
            if (described := _description(node, answer)) is not None:
                self._add(node, described)
                has_answered = True
                continue
            self._mute[node] = self._mute.get(node, 0) + 1
            if self._mute[node] == MOST_FAILURES:
                _log.warning("node %d is not asked again until it connects anew", node)
        return has_answered

    def _add(self, node: int, described: NodeDescription) -> None:
        for other in self._descriptions.values():
            if other.partitions != described.partitions:
                raise TrainingError(
                    f"SuperNodes have num-partitions {other.partitions} and "
                    f"{described.partitions}; give all of them the same number"
                )
            if other.environment != described.environment:
                _log.warning(
                    "SuperNodes train in different environments, so that the bytes of an update "
                    "depend on who trains it: %s; %s",
                    other.environment,
                    described.environment,
                )
        self._descriptions[node] = described
        self._node_of[described.partition] = node


def _answered(answer: bytes | UnansweredError) -> bytes:
    if isinstance(answer, UnansweredError):
        raise answer
    return answer


class _Patience:
    """Pauses until something has not happened for too long."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._since = time.monotonic()

    def pause(self, what: str) -> None:
        if time.monotonic() - self._since > NODE_SECONDS:
            raise TrainingError(f"{what} responded for {NODE_SECONDS:g} s")
        time.sleep(_POLL_SECONDS)


def _description(node: int, answer: bytes | UnansweredError) -> NodeDescription | None:
    described: NodeDescription | NodeFailure
    try:
        described = decode(_answered(answer), MAX_OVERHEAD_BYTES, NodeDescription, NodeFailure)
    except EncodingError as error:
        _log.warning("node %d does not describe itself: %s", node, error)
        return None
    if isinstance(described, NodeFailure):
        raise TrainingError(f"a SuperNode refuses: {described.sentence}")
    return described


FLWR = "flwr[simulation]==1.41.0"  # the version that the tests run with


def require_flower(*modules: str) -> None:
    """Reject what needs Flower where it is not installed."""
    if any(importlib.util.find_spec(module) is None for module in modules):
        raise ConfigurationError(
            "Flower is missing. Its dependencies conflict with this project's, so use a "
            f"separate environment: {install_command('clients')} '{FLWR}'"
        )


class FlowerEngine(Engine):
    """Trains on the nodes of Flower; an engine of this process does the rest."""

    def __init__(
        self, local: Engine, nodes: Nodes, configuration: Configuration, dimension: int
    ) -> None:
        self._local, self.distances = local, local.distances
        self._run = run_digest(configuration)
        self._partitions = Partitions(nodes, self._run)
        protocol = configuration.protocol
        self._form, self._clients = protocol.payload_form, protocol.clients
        self._dimension = dimension

    def train(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> list[TrainedUpdate]:
        require_jobs(start, jobs, self._dimension, self._clients)
        count = self._partitions.count()
        work: defaultdict[int, list[TrainingJob]] = defaultdict(list)
        for job in jobs:
            work[job.client % count].append(job)
        messages, model = {}, vector_bytes(start)
        for partition, part in work.items():
            clients, seeds = tuple(job.client for job in part), tuple(job.seed for job in part)
            messages[partition] = encode(TrainingRequest(self._run, model, clients, seeds))
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
    """Return the digest of a run's settings, except the settings of one machine."""
    machine = MachineSection()
    return sha256(configuration.model_copy(update={"machine": machine}).to_toml().encode())


class TrainingNode:
    """Trains for a ServerApp that has the same settings."""

    def __init__(self, configuration: Configuration) -> None:
        population = populate(configuration)
        configuration = with_training_path(configuration, population)
        machine, path = configuration.machine, settled_path(configuration)
        alone = machine.model_copy(update={"workers": 1})
        here = configuration.model_copy(update={"machine": alone})
        self._run = run_digest(configuration)
        self._environment = environment_here(path, machine.device, machine.isa)
        self._engine = run_engine(here, population.model, population.data, rows=1)
        self._dimension = population.model.dimension

    def answer(self, message: bytes, partition: int, partitions: int) -> bytes:
        limit = 4 * self._dimension + MAX_OVERHEAD_BYTES
        request: NodeQuery | TrainingRequest
        try:
            request = decode(message, limit, NodeQuery, TrainingRequest)
            if request.run != self._run:
                raise ConfigurationError(
                    "the run's settings differ between ServerApp and SuperNode; install the "
                    "same app, run.toml and run configuration on both"
                )
            if isinstance(request, NodeQuery):
                return encode(NodeDescription(partition, partitions, str(self._environment)))
            start = vector_from_bytes(request.start, self._dimension)
            trained = self._engine.train(start, [*map(TrainingJob, request.clients, request.seeds)])
            return encode(TrainedPayloads(tuple(bytes(each.payload.data) for each in trained)))
        except (CmflError, ValueError) as error:
            return encode(NodeFailure(str(error)))

    def close(self) -> None:
        self._engine.close()
