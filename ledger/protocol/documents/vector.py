"""A score vector: what a member publishes of a round, and signs by its sha256."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ledger.protocol import canonical
from ledger.protocol.canonical import (
    client_id,
    digest,
    packed_clients,
    unsigned,
    versioned_fields,
)
from ledger.protocol.encoding import client_list
from ledger.protocol.errors import EncodingError
from ledger.protocol.types import PROTOCOL_VERSION, ClientId, Digest

MAX_VECTOR_BYTES = 100_000
"""Largest score vector that is decoded; one of 256 trainers and 159 members takes 5 kB."""

DISTANCE_LIMIT = 1e300
"""Largest distance that counts; a mean of larger ones could overflow."""


@dataclass(frozen=True, slots=True)
class ScoreVector:
    """A member's distances to the trainers and to the other members.

    Attributes:
        trainers: the trainers scored, ascending.
        distances: D_k^c of each, shape (len(trainers),).
        members: the other members with an update, ascending.
        member_distances: D of each, shape (len(members),).
    """

    round: int
    member: ClientId
    base: Digest
    trainers: tuple[ClientId, ...]
    distances: NDArray[np.float64]
    members: tuple[ClientId, ...]
    member_distances: NDArray[np.float64]

    @property
    def clients(self) -> tuple[ClientId, ...]:
        """All clients with a distance, and the member, ascending."""
        return tuple(sorted({*self.trainers, *self.members, self.member}))

    def claims(self) -> dict[ClientId, float]:
        """Return the published distance to each other client."""
        published = [*self.distances.tolist(), *self.member_distances.tolist()]
        return dict(zip(self.trainers + self.members, published, strict=True))

    @property
    def is_in_range(self) -> bool:
        """True if every distance is finite, has sign bit 0 and is at most `DISTANCE_LIMIT`."""
        values = np.concatenate([self.distances, self.member_distances])
        return bool(np.all(values <= DISTANCE_LIMIT) and not np.signbit(values).any())


def encode_vector(vector: ScoreVector) -> bytes:
    """Return the bytes whose sha256 the member signs."""
    return canonical.encode(
        {
            "version": PROTOCOL_VERSION,
            "round": vector.round,
            "member": vector.member,
            "base": vector.base,
            "trainers": client_list(vector.trainers),
            "distances": np.asarray(vector.distances, dtype="<f8").tobytes(),
            "members": client_list(vector.members),
            "member_distances": np.asarray(vector.member_distances, dtype="<f8").tobytes(),
        }
    )


def decode_vector(data: bytes) -> ScoreVector:
    """Return the score vector behind a blob.

    Returns:
        The vector, with as many distances as clients; their values are judged elsewhere.
    """
    lists = ("trainers", "distances", "members", "member_distances")
    types = {"round": int, "member": int, "base": bytes, **dict.fromkeys(lists, bytes)}
    value = versioned_fields("score vector", canonical.decode(data, MAX_VECTOR_BYTES), types)
    trainers, members = packed_clients(value["trainers"]), packed_clients(value["members"])
    return ScoreVector(
        unsigned("round", value["round"], 64),
        client_id(value["member"]),
        digest(value["base"]),
        trainers,
        _distances(value["distances"], len(trainers)),
        members,
        _distances(value["member_distances"], len(members)),
    )


def _distances(data: bytes, count: int) -> NDArray[np.float64]:
    if len(data) != 8 * count:
        raise EncodingError(f"{len(data)} bytes are not {count} float64 distances")
    return np.frombuffer(data, dtype="<f8")
