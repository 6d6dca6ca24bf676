"""Messages between a ServerApp and the ClientApps that train for it: canonical, bounded bytes.

Flower carries each as one array of bytes. Both sides read untrusted bytes: of another version, of
another run, or of a node that sends something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clients.training.port import TrainingJob
from ledger.protocol import canonical
from ledger.protocol.errors import EncodingError
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1
MAX_OVERHEAD_BYTES = 1 << 20
"""Of a message beside the models or payloads in it: 16,384 jobs take 0.7 MB."""

MAX_SENTENCE = 500
_DIGEST_BYTES = _SEED_BYTES = 32


@dataclass(frozen=True, slots=True)
class NodeQuery:
    """A question to a node that has just connected.

    Attributes:
        run: digest of the settings that an update follows from.
    """

    run: Digest


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """The answer of a node.

    Attributes:
        partition: its number, from 0; it trains the clients with this remainder.
        partitions: number of nodes.
        environment: class of the environment in which it trains, for people.
    """

    partition: int
    partitions: int
    environment: str


@dataclass(frozen=True, slots=True)
class TrainingRequest:
    """Clients to be trained.

    Attributes:
        run: digest of the settings that an update follows from.
        start: w_t as little-endian float32.
        jobs: clients and seeds.
    """

    run: Digest
    start: bytes
    jobs: tuple[TrainingJob, ...]


@dataclass(frozen=True, slots=True)
class TrainedPayloads:
    """The answer of a node that has trained.

    Attributes:
        payloads: of the jobs, in order.
    """

    payloads: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """The answer of a node that cannot do what it is asked.

    Attributes:
        sentence: the reason.
    """

    sentence: str


Request = NodeQuery | TrainingRequest
Answer = NodeDescription | TrainedPayloads | NodeFailure


def encode_request(request: Request) -> bytes:
    """Return the bytes of a request."""
    if isinstance(request, NodeQuery):
        return _encode("query", run=request.run)
    return _encode(
        "train",
        run=request.run,
        start=request.start,
        clients=[job.client for job in request.jobs],
        seeds=[job.seed for job in request.jobs],
    )


def decode_request(data: bytes, limit: int) -> Request:
    """Return the request in untrusted bytes.

    Args:
        data: a message.
        limit: largest message that is decoded.

    Raises:
        EncodingError: too large, or no request of this version.
    """
    fields = _decode(data, limit)
    kind = fields.pop("kind")
    if kind == "query":
        _require(fields, run=bytes)
        return NodeQuery(_digest(fields["run"]))
    if kind == "train":
        _require(fields, run=bytes, start=bytes, clients=list, seeds=list)
        return TrainingRequest(_digest(fields["run"]), fields["start"], _jobs(fields))
    raise EncodingError("a message is no request to a node")


def encode_answer(answer: Answer) -> bytes:
    """Return the bytes of an answer."""
    match answer:
        case NodeDescription():
            return _encode(
                "node",
                partition=answer.partition,
                partitions=answer.partitions,
                environment=answer.environment,
            )
        case TrainedPayloads():
            return _encode("trained", payloads=list(answer.payloads))
        case NodeFailure():
            return _encode("failed", sentence=answer.sentence[:MAX_SENTENCE])


def decode_answer(data: bytes, limit: int) -> Answer:
    """Return the answer in untrusted bytes.

    Args:
        data: a message.
        limit: largest message that is decoded.

    Raises:
        EncodingError: too large, or no answer of this version.
    """
    fields = _decode(data, limit)
    kind = fields.pop("kind")
    if kind == "node":
        _require(fields, partition=int, partitions=int, environment=str)
        partition, partitions = fields["partition"], fields["partitions"]
        if not 0 <= partition < partitions:
            raise EncodingError(f"partition {partition} of {partitions}")
        return NodeDescription(partition, partitions, _sentence(fields["environment"]))
    if kind == "trained":
        _require(fields, payloads=list)
        if any(type(payload) is not bytes for payload in fields["payloads"]):
            raise EncodingError("payloads are bytes")
        return TrainedPayloads(tuple(fields["payloads"]))
    if kind == "failed":
        _require(fields, sentence=str)
        return NodeFailure(_sentence(fields["sentence"]))
    raise EncodingError("a message is no answer of a node")


def _encode(kind: str, **fields: object) -> bytes:
    return canonical.encode({"version": VERSION, "kind": kind, **fields})


def _decode(data: bytes, limit: int) -> dict[str, Any]:
    """Return the fields of a message and its kind.

    Raises:
        EncodingError: too large, no canonical map, or of another version.
    """
    fields = canonical.decode(data, limit, containers=3)
    if fields.pop("version", None) != VERSION or type(fields.get("kind")) is not str:
        raise EncodingError(f"a message has version {VERSION} and a kind")
    return fields


def _require(fields: Mapping[str, object], **types: type) -> None:
    """Refuse other fields or types than these; raises EncodingError."""
    if {name: type(value) for name, value in fields.items()} != types:
        raise EncodingError(f"a message of this kind has {', '.join(sorted(types))}")


def _sentence(text: str) -> str:
    """Return a text as one line of bounded length."""
    return " ".join(text.split())[:MAX_SENTENCE]


def _digest(data: bytes) -> Digest:
    """Return a digest; raises EncodingError if it is none."""
    if len(data) != _DIGEST_BYTES:
        raise EncodingError(f"a digest of {len(data)} bytes")
    return Digest(data)


def _jobs(fields: Mapping[str, Any]) -> tuple[TrainingJob, ...]:
    """Return the jobs of a request; raises EncodingError if they are none."""
    clients, seeds = fields["clients"], fields["seeds"]
    if any(type(client) is not int for client in clients) or len(clients) != len(seeds):
        raise EncodingError("a job has a client's number and a seed")
    if any(type(seed) is not bytes or len(seed) != _SEED_BYTES for seed in seeds):
        raise EncodingError(f"a seed has {_SEED_BYTES} bytes")
    return tuple(map(TrainingJob, clients, seeds))
