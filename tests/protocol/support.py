"""What the tests of the protocol share: keys, a registry, and a round small enough for a pencil.

Keys are derived from a sentence: PUBLIC TEST KEYS, worth nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st

from ledger.protocol import encoding
from ledger.protocol.counting import CountedScores, Electorate, Updates
from ledger.protocol.documents import ScoreVector, encode_score_vector
from ledger.protocol.errors import BlobMissingError
from ledger.protocol.scoring import squared_distance
from ledger.protocol.signing import GROUP_ORDER, KeySigner, sign
from ledger.protocol.types import (
    Address,
    ClientId,
    Digest,
    Domain,
    RegisteredClient,
    Scores,
    SignedScores,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from ledger.protocol.parameters import Parameters

DOMAIN = Domain(31337, Address(bytes(range(20))))
SEED = Digest(bytes(32))

digests = st.binary(min_size=32, max_size=32).map(Digest)
client_ids = st.integers(0, 2**32 - 1).map(ClientId)
distances = st.floats(0, allow_infinity=False, allow_nan=False).map(abs)
"""Non-negative and finite; never -0.0."""


def ids(*clients: int) -> tuple[ClientId, ...]:
    return tuple(map(ClientId, clients))


@cache
def signers() -> tuple[KeySigner, ...]:
    """Return sixteen PUBLIC TEST KEYS, ascending by address as a registry must be."""
    keys = (encoding.keccak256(b"PUBLIC TEST KEY of client %d" % i) for i in range(16))
    return tuple(sorted(map(KeySigner, keys), key=lambda signer: signer.address))


def registry_of(count: int, samples: int = 10) -> tuple[RegisteredClient, ...]:
    return tuple(RegisteredClient(signer.address, samples) for signer in signers()[:count])


def f32(*values: float) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32)


def malleated(signature: bytes) -> bytes:
    """Return the other signature of the same digest and key, with s in the upper half."""
    s = GROUP_ORDER - int.from_bytes(signature[32:64])
    return signature[:32] + s.to_bytes(32) + bytes([55 - signature[64]])


class Shelf:
    """A blob store of a few lines."""

    def __init__(self, blobs: Iterable[bytes] = ()) -> None:
        self._blobs = {encoding.sha256(blob): blob for blob in blobs}

    def put(self, blob: bytes) -> Digest:
        digest = encoding.sha256(blob)
        self._blobs[digest] = blob
        return digest

    def get(self, digest: Digest) -> bytes:
        try:
            return self._blobs[digest]
        except KeyError:
            raise BlobMissingError(digest.hex()) from None


@dataclass(frozen=True)
class SmallRound:
    """A round with d = 1, so that every distance is the square of a difference.

    Members come first: clients 0 .. C-1; the trainers follow. All claim 10 samples.
    """

    parameters: Parameters
    updates: Updates

    @property
    def committee(self) -> tuple[ClientId, ...]:
        return ids(*range(self.parameters.members))

    @property
    def trainers(self) -> tuple[ClientId, ...]:
        return ids(*range(self.parameters.members, self.parameters.clients))

    @property
    def registry(self) -> tuple[RegisteredClient, ...]:
        return registry_of(self.parameters.clients)

    @property
    def electorate(self) -> Electorate:
        return Electorate(DOMAIN, 1, self.registry, self.trainers, self.committee)

    def distance(self, client: ClientId, member: ClientId) -> float:
        return squared_distance(self.updates.vectors[client], self.updates.vectors[member])

    def vector(self, member: ClientId) -> ScoreVector:
        """Return the true score vector of a member."""
        usable = self.updates.vectors
        trainers = tuple(c for c in self.trainers if c in usable)
        others = tuple(c for c in self.committee if c in usable and c != member)
        return ScoreVector(
            1,
            member,
            trainers,
            np.array([self.distance(client, member) for client in trainers]),
            others,
            np.array([self.distance(other, member) for other in others]),
        )

    def counted(self) -> dict[ClientId, CountedScores]:
        vectors = (self.vector(member) for member in self.committee)
        return {
            vector.member: CountedScores(vector, encoding.sha256(encode_score_vector(vector)))
            for vector in vectors
        }


def small_round(
    parameters: Parameters, values: Mapping[int, float], missing: Iterable[int] = ()
) -> SmallRound:
    """Return the round in which client i's update is values[i] (0.0 if not given)."""
    left_out = set(missing)
    vectors = {
        ClientId(i): f32(values.get(i, 0.0)) for i in range(parameters.clients) if i not in left_out
    }
    payloads = {c: encoding.sha256(encoding.vector_bytes(v)) for c, v in vectors.items()}
    dropouts = tuple((ClientId(i), "no commitment") for i in sorted(left_out))
    return SmallRound(parameters, Updates(vectors, payloads, dropouts))


def signed_scores(
    shelf: Shelf, vector: ScoreVector, *, key: int | None = None, round_number: int = 1
) -> SignedScores:
    """Return the signed claim of a vector, which lies on the shelf."""
    scores = Scores(round_number, vector.member, shelf.put(encode_score_vector(vector)))
    signer = signers()[vector.member if key is None else key]
    return SignedScores(scores, sign(signer, DOMAIN, scores))
