"""Messages between a ServerApp and the ClientApps that train for it: canonical, bounded bytes.

Flower carries each as one array of bytes. Both sides read untrusted bytes: of another version, of
another run, or of a node that sends something else.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from clients.training.port import TrainingJob
from ledger.protocol import canonical
from ledger.protocol.errors import EncodingError
from ledger.protocol.types import Digest

VERSION = 1
MAX_OVERHEAD_BYTES = 1 << 20
"""Of a message beside the models or payloads in it: 16,384 jobs take 0.7 MB."""

MAX_SENTENCE = 500
_SEED_BYTES = 32
_STRICT = ConfigDict(strict=True, extra="forbid")
_Run = Annotated[Digest, Field(min_length=32, max_length=32)]
_Sentence = Annotated[str, AfterValidator(lambda text: " ".join(text.split())[:MAX_SENTENCE])]


@dataclass(frozen=True, slots=True, config=_STRICT)
class NodeQuery:
    """A question to a node that has just connected.

    Attributes:
        run: digest of the settings that an update follows from.
    """

    run: _Run


@dataclass(frozen=True, slots=True, config=_STRICT)
class NodeDescription:
    """The answer of a node.

    Attributes:
        partition: its number, from 0; it trains the clients with this remainder.
    """

    partition: int
    partitions: int
    environment: _Sentence

    def __post_init__(self) -> None:
        if not 0 <= self.partition < self.partitions:
            raise ValueError(f"partition {self.partition} of {self.partitions}")


@dataclass(frozen=True, slots=True, config=_STRICT)
class TrainingRequest:
    """Clients to be trained.

    Attributes:
        run: digest of the settings that an update follows from.
        start: w_t as little-endian float32.
    """

    run: _Run
    start: bytes
    jobs: tuple[TrainingJob, ...]


@dataclass(frozen=True, slots=True, config=_STRICT)
class TrainedPayloads:
    """The answer of a node that has trained; its payloads are in the order of the jobs."""

    payloads: Annotated[tuple[bytes, ...], Field(strict=False)]


@dataclass(frozen=True, slots=True, config=_STRICT)
class NodeFailure:
    """The answer of a node that cannot do what it is asked, with the reason."""

    sentence: _Sentence


Request = NodeQuery | TrainingRequest
Answer = NodeDescription | TrainedPayloads | NodeFailure
_REQUESTS: dict[str, type[Any]] = {"query": NodeQuery, "train": TrainingRequest}
_ANSWERS: dict[str, type[Any]] = {
    "node": NodeDescription,
    "trained": TrainedPayloads,
    "failed": NodeFailure,
}


def encode_request(request: Request) -> bytes:
    """Return the bytes of a request."""
    return _encode(_REQUESTS, request)


def decode_request(data: bytes, limit: int) -> Request:
    """Return the request behind untrusted bytes."""
    request: Request = _decode(_REQUESTS, data, limit, "request to a node")
    return request


def encode_answer(answer: Answer) -> bytes:
    """Return the bytes of an answer."""
    return _encode(_ANSWERS, answer)


def decode_answer(data: bytes, limit: int) -> Answer:
    """Return the answer behind untrusted bytes."""
    answer: Answer = _decode(_ANSWERS, data, limit, "answer of a node")
    return answer


def _encode(kinds: dict[str, type[Any]], message: Any) -> bytes:
    kind = next(name for name, one in kinds.items() if isinstance(message, one))
    values = {field.name: getattr(message, field.name) for field in fields(message)}
    if isinstance(message, TrainingRequest):
        jobs = values.pop("jobs")
        values |= {"clients": [job.client for job in jobs], "seeds": [job.seed for job in jobs]}
    if "payloads" in values:
        values["payloads"] = list(values["payloads"])
    return canonical.encode({"version": VERSION, "kind": kind, **values})


def _decode(kinds: dict[str, type[Any]], data: bytes, limit: int, what: str) -> Any:
    values = canonical.decode(data, limit, containers=3)
    kind = values.pop("kind", None)
    if values.pop("version", None) != VERSION or not isinstance(kind, str):
        raise EncodingError(f"a message has version {VERSION} and a kind")
    if kind not in kinds:
        raise EncodingError(f"a message is no {what}")
    try:
        if kind == "train":
            values["jobs"] = _jobs(values.pop("clients"), values.pop("seeds"))
        return kinds[kind](**values)
    except (ValidationError, KeyError, TypeError) as error:
        raise EncodingError(f"a message of kind {kind} has other fields") from error


def _jobs(clients: list[Any], seeds: list[Any]) -> tuple[TrainingJob, ...]:
    if any(type(client) is not int for client in clients) or len(clients) != len(seeds):
        raise EncodingError("a job has a client's number and a seed")
    if any(type(seed) is not bytes or len(seed) != _SEED_BYTES for seed in seeds):
        raise EncodingError(f"a seed has {_SEED_BYTES} bytes")
    return tuple(map(TrainingJob, clients, seeds))
