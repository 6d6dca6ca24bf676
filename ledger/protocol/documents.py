"""Blobs that are documents: the run's configuration, score vectors and round records.

Each is a map in canonical msgpack, so that a document has one digest. A decoder takes nothing on
trust but also judges nothing: types and ranges are checked here, what the fields claim elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ledger.protocol import canonical
from ledger.protocol.encoding import PROTOCOL_VERSION
from ledger.protocol.errors import EncodingError, ParametersError
from ledger.protocol.parameters import Parameters
from ledger.protocol.types import (
    Address,
    Beacon,
    ClientId,
    Digest,
    Phase,
    RegisteredClient,
    Scores,
    Scoring,
    SignedScores,
    SignedVote,
    Strategy,
    Vote,
    VoteKind,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_RATES = ("active_rate", "committee_rate", "aggregation_rate", "server_rate")

MAX_SCORES_BYTES = 100_000
"""Largest score vector that is decoded; one of 256 trainers and 159 members takes 6 kB."""


@dataclass(frozen=True, slots=True)
class RunDocument:
    """The configuration of a run; its sha256 is the contract's configHash.

    Attributes:
        parameters: the protocol's parameters.
        registry: every client's address and samples, index by index.
        initial_model: sha256 of w_1.
        experiment: how clients train, as the trainer's own settings; opaque to an auditor.
    """

    parameters: Parameters
    registry: tuple[RegisteredClient, ...]
    initial_model: Digest
    experiment: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ScoreVector:
    """What a member publishes of a round: its distances to trainers and to the other members.

    Attributes:
        round: t.
        member: c.
        trainers: the trainers scored, ascending.
        distances: D_k^c of each, shape (len(trainers),).
        members: the other members with an update, ascending.
        member_distances: D of each, shape (len(members),).
    """

    round: int
    member: ClientId
    trainers: tuple[ClientId, ...]
    distances: NDArray[np.float64]
    members: tuple[ClientId, ...]
    member_distances: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RefusedScores:
    """A signed score claim that the committee left out, and why."""

    signed: SignedScores
    reason: str


@dataclass(frozen=True, slots=True)
class Incident:
    """Something a member did wrong while voting, with what it signed as evidence.

    Attributes:
        phase: what was voted on.
        view: in which view.
        member: who.
        kind: "silent", "wrong proposal", "no quorum" or "equivocation".
        votes: the votes that prove it; none for silence.
    """

    phase: Phase
    view: int
    member: ClientId
    kind: str
    votes: tuple[SignedVote, ...]


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """What a round's decision rests on beyond the chain: a pointer list, checked by its reader.

    Attributes:
        round: t.
        scores: the signed score claims that count, ascending by member.
        refused: those that do not, and why.
        dropouts: trainers and members without a usable update, and why.
        incidents: what went wrong while voting.
    """

    round: int
    scores: tuple[SignedScores, ...]
    refused: tuple[RefusedScores, ...]
    dropouts: tuple[tuple[ClientId, str], ...]
    incidents: tuple[Incident, ...]


def encode_run(document: RunDocument) -> bytes:
    """Return the bytes of a run's configuration."""
    parameters = {f.name: getattr(document.parameters, f.name) for f in fields(Parameters)}
    parameters |= {
        "strategy": int(document.parameters.strategy),
        "scoring": str(document.parameters.scoring),
        "beacon": str(document.parameters.beacon),
    }
    parameters |= {name: float(parameters[name]) for name in _RATES}
    return canonical.encode(
        {
            "version": PROTOCOL_VERSION,
            "parameters": parameters,
            "registry": [[client.address, client.samples] for client in document.registry],
            "initial_model": document.initial_model,
            "experiment": dict(document.experiment),
        }
    )


def decode_run(data: bytes) -> RunDocument:
    """Return the run's configuration behind a blob.

    Args:
        data: the blob.

    Returns:
        The configuration, with its invariants checked.

    Raises:
        EncodingError: not a configuration of this protocol version.
    """
    value = _fields(
        canonical.decode(data),
        {"version": int, "parameters": dict, "registry": list}
        | {"initial_model": bytes, "experiment": dict},
    )
    if value["version"] != PROTOCOL_VERSION:
        raise EncodingError(f"protocol version {value['version']} is not {PROTOCOL_VERSION}")
    types: dict[str, type] = {
        "rounds": int,
        "dimension": int,
        "clients": int,
        "deadline_blocks": int,
    }
    types |= {"strategy": int, "scoring": str, "beacon": str, "scores_checked": bool}
    settings = _fields(value["parameters"], types | dict.fromkeys(_RATES, float))
    try:
        settings["strategy"] = Strategy(settings["strategy"])
        settings["scoring"] = Scoring(settings["scoring"])
        settings["beacon"] = Beacon(settings["beacon"])
        parameters = Parameters(**settings)
    except (ValueError, ParametersError) as error:
        raise EncodingError(f"parameters: {error!s:.200}") from error
    registry = tuple(_client(entry) for entry in value["registry"])
    if len(registry) != parameters.clients:
        raise EncodingError(f"{len(registry)} registered clients are not {parameters.clients}")
    model = _digest(value["initial_model"])
    return RunDocument(parameters, registry, model, value["experiment"])


def encode_score_vector(vector: ScoreVector) -> bytes:
    """Return the bytes whose sha256 the member signs."""
    return canonical.encode(
        {
            "round": vector.round,
            "member": vector.member,
            "trainers": list(vector.trainers),
            "distances": np.asarray(vector.distances, dtype="<f8").tobytes(),
            "members": list(vector.members),
            "member_distances": np.asarray(vector.member_distances, dtype="<f8").tobytes(),
        }
    )


def decode_score_vector(data: bytes) -> ScoreVector:
    """Return the score vector behind a blob.

    Args:
        data: the blob.

    Returns:
        The vector: as many distances as clients, all finite and not negative.

    Raises:
        EncodingError: anything else.
    """
    value = _fields(
        canonical.decode(data, MAX_SCORES_BYTES),
        {"round": int, "member": int, "trainers": list, "distances": bytes}
        | {"members": list, "member_distances": bytes},
    )
    trainers, members = _clients(value["trainers"]), _clients(value["members"])
    return ScoreVector(
        _whole("round", value["round"], 64),
        _client_id(value["member"]),
        trainers,
        _distances(value["distances"], len(trainers)),
        members,
        _distances(value["member_distances"], len(members)),
    )


def encode_record(record: RoundRecord) -> bytes:
    """Return the bytes of a round's record."""
    return canonical.encode(
        {
            "round": record.round,
            "scores": [_from_scores(signed) for signed in record.scores],
            "refused": [[*_from_scores(entry.signed), entry.reason] for entry in record.refused],
            "dropouts": [[client, reason] for client, reason in record.dropouts],
            "incidents": [
                [int(i.phase), i.view, i.member, i.kind, [_from_vote(v) for v in i.votes]]
                for i in record.incidents
            ],
        }
    )


def decode_record(data: bytes) -> RoundRecord:
    """Return the round record behind a blob.

    Args:
        data: the blob.

    Returns:
        The record; what it lists is not checked here.

    Raises:
        EncodingError: not a round record.
    """
    lists = ("scores", "refused", "dropouts", "incidents")
    value = _fields(canonical.decode(data), {"round": int} | dict.fromkeys(lists, list))
    number = _whole("round", value["round"], 64)
    try:
        return RoundRecord(
            number,
            tuple(_to_scores(number, *entry) for entry in value["scores"]),
            tuple(
                RefusedScores(_to_scores(number, *entry), _text(reason))
                for *entry, reason in value["refused"]
            ),
            tuple((_client_id(client), _text(reason)) for client, reason in value["dropouts"]),
            tuple(_to_incident(number, *entry) for entry in value["incidents"]),
        )
    except (TypeError, ValueError) as error:
        raise EncodingError(f"not a round record: {error!s:.200}") from error


def _fields(value: Mapping[str, Any], types: Mapping[str, type]) -> dict[str, Any]:
    if set(value) != set(types):
        odd = sorted(set(value) ^ set(types))
        raise EncodingError(f"fields {odd!s:.200} are missing or not known")
    for name, kind in types.items():
        if type(value[name]) is not kind:
            raise EncodingError(f"{name} is not of type {kind}")
    return dict(value)


def _whole(name: str, value: object, bits: int) -> int:
    if type(value) is not int or not 0 <= value < 1 << bits:
        raise EncodingError(f"{name} {value!r:.80} is not a whole number of {bits} bits")
    return value


def _client_id(value: object) -> ClientId:
    return ClientId(_whole("client", value, 32))


def _clients(values: list[object]) -> tuple[ClientId, ...]:
    clients = tuple(_client_id(value) for value in values)
    if any(a >= b for a, b in pairwise(clients)):
        raise EncodingError("clients are not ascending")
    return clients


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise EncodingError(f"{value!r:.80} is not text")
    return value


def _digest(value: object) -> Digest:
    if not isinstance(value, bytes) or len(value) != 32:
        raise EncodingError("a digest has 32 bytes")
    return Digest(value)


def _signature(value: object) -> bytes:
    if not isinstance(value, bytes) or len(value) != 65:
        raise EncodingError("a signature has 65 bytes")
    return value


def _client(entry: object) -> RegisteredClient:
    match entry:
        case [bytes(address), samples] if len(address) == 20:
            claimed = _whole("samples", samples, 64)
            if claimed:
                return RegisteredClient(Address(address), claimed)
    raise EncodingError("a registered client is a 20-byte address and its samples, at least 1")


def _distances(data: bytes, count: int) -> NDArray[np.float64]:
    if len(data) != 8 * count:
        raise EncodingError(f"{len(data)} bytes are not {count} float64 distances")
    values = np.frombuffer(data, dtype="<f8")
    if not np.isfinite(values).all() or np.signbit(values).any():
        raise EncodingError("a distance is not finite or negative")
    return values


def _from_scores(signed: SignedScores) -> list[object]:
    return [signed.scores.member, signed.scores.digest, signed.signature]


def _to_scores(number: int, member: object, digest: object, signature: object) -> SignedScores:
    scores = Scores(number, _client_id(member), _digest(digest))
    return SignedScores(scores, _signature(signature))


def _from_vote(signed: SignedVote) -> list[object]:
    vote = signed.vote
    values = [str(vote.kind), vote.timestamp, vote.set_digest, vote.result]
    return [signed.member, *values, signed.signature]


def _to_incident(
    number: int, phase: object, view: object, member: object, kind: object, votes: object
) -> Incident:
    if not isinstance(votes, list):
        raise EncodingError("the votes of an incident are not a list")
    where = (number, Phase(_whole("phase", phase, 8)), _whole("view", view, 32))
    signed = tuple(_to_vote(*where, *vote) for vote in votes)
    return Incident(*where[1:], _client_id(member), _text(kind), signed)


def _to_vote(number: int, phase: Phase, view: int, *values: object) -> SignedVote:
    member, kind, timestamp, set_digest, result, signature = values
    moment = _whole("time stamp", timestamp, 64)
    digests = (_digest(set_digest), _digest(result))
    vote = Vote(VoteKind(_text(kind)), number, phase, view, moment, *digests)
    return SignedVote(_client_id(member), vote, _signature(signature))
