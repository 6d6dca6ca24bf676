"""Which updates are usable and which score vectors count: what a decision may rest on.

A member counts another's score vector only if it is signed, complete and (where the deployment
says so) true: the members' own updates are committed and published too, so every distance can be
recomputed, and a lie is left out with its signature kept as evidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.protocol import encoding
from ledger.protocol.documents import RefusedScores, decode_score_vector
from ledger.protocol.errors import BlobError, EncodingError
from ledger.protocol.signing import is_signed_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ledger.protocol.documents import ScoreVector
    from ledger.protocol.types import ClientId, Digest, Domain, RegisteredClient, SignedScores

RELATIVE_TOLERANCE = 1e-9
"""How far a published distance may be from the recomputed one: orders of summation differ."""

DISTANCE_LIMIT = 1e300
"""Largest distance that is scored; a mean of larger ones could overflow."""

NO_COMMITMENT = "no commitment"
PAYLOAD_MISSING = "payload missing"
PAYLOAD_MALFORMED = "payload malformed"


@dataclass(frozen=True, slots=True)
class Updates:
    """The usable updates of a round, and who has none.

    Attributes:
        vectors: Δ of each client whose committed payload is present, well-formed and finite.
        payloads: digest of each of them.
        dropouts: the other active clients, ascending, each with its reason.
    """

    vectors: Mapping[ClientId, NDArray[np.float32]]
    payloads: Mapping[ClientId, Digest]
    dropouts: tuple[tuple[ClientId, str], ...]


@dataclass(frozen=True, slots=True)
class CountedScores:
    """A score vector that counts, with the digest its member signed."""

    vector: ScoreVector
    digest: Digest


@dataclass(frozen=True, slots=True)
class Electorate:
    """Who may score and be scored in a round.

    Attributes:
        domain: the contract and chain that signatures are bound to.
        round: t.
        registry: all clients.
        trainers: S_b.
        committee: S_c.
    """

    domain: Domain
    round: int
    registry: Sequence[RegisteredClient]
    trainers: tuple[ClientId, ...]
    committee: tuple[ClientId, ...]


def collect_updates(
    active: Iterable[ClientId],
    commitments: Mapping[ClientId, Digest],
    fetch: Callable[[Digest], bytes],
    dimension: int,
) -> Updates:
    """Return the usable updates of the active clients (Algorithm 3, line 10).

    Args:
        active: trainers and members of the round.
        commitments: payload digests on the chain.
        fetch: returns the blob with a digest, or raises BlobError.
        dimension: d.

    Returns:
        Updates by client, and the dropouts with their reasons.
    """
    vectors, payloads, dropouts = {}, {}, []
    for client in sorted(active):
        payload = commitments.get(client)
        if payload is None:
            dropouts.append((client, NO_COMMITMENT))
            continue
        try:
            vectors[client] = encoding.vector_from_bytes(fetch(payload), dimension)
        except BlobError:
            dropouts.append((client, PAYLOAD_MISSING))
        except EncodingError:
            dropouts.append((client, PAYLOAD_MALFORMED))
        else:
            payloads[client] = payload
    return Updates(vectors, payloads, tuple(dropouts))


def count_scores(
    electorate: Electorate,
    updates: Updates,
    published: Iterable[SignedScores],
    fetch: Callable[[Digest], bytes],
    distance: Callable[[ClientId, ClientId], float] | None,
) -> tuple[dict[ClientId, CountedScores], tuple[RefusedScores, ...]]:
    """Return the score vectors that count, and the others with the reason (Algorithm 1, 1-5).

    Args:
        electorate: who may score whom.
        updates: the usable updates.
        published: the members' signed claims; of several by one member the first counts.
        fetch: returns the blob with a digest, or raises BlobError.
        distance: squared distance of the updates of a client and a member, to check the claims
            by; None if they are not checked.

    Returns:
        Counted vectors by member, and refused claims in the order published.
    """
    counted: dict[ClientId, CountedScores] = {}
    refused = []
    for signed in published:
        member, digest = signed.scores.member, signed.scores.digest
        try:
            vector = decode_score_vector(fetch(digest))
        except (BlobError, EncodingError) as error:
            refused.append(RefusedScores(signed, f"unreadable: {type(error).__name__}"))
            continue
        reason = why_not_counted(electorate, updates, signed, vector)
        if reason is None and member in counted:
            reason = "its member has published another before"
        if reason is None and distance is not None:
            reason = why_false(vector, distance)
        if reason is None:
            counted[member] = CountedScores(vector, digest)
        else:
            refused.append(RefusedScores(signed, reason))
    return counted, tuple(refused)


def why_not_counted(
    electorate: Electorate, updates: Updates, signed: SignedScores, vector: ScoreVector
) -> str | None:
    """Say why a score vector cannot count, whether true or not; None if it can.

    Args:
        electorate: who may score whom.
        updates: the usable updates.
        signed: the claim.
        vector: what it claims.

    Returns:
        The reason, or None.
    """
    member = signed.scores.member
    if member not in electorate.committee:
        return "its signer is no member"
    address = electorate.registry[member].address
    if not is_signed_by(address, electorate.domain, signed.scores, signed.signature):
        return "it is not signed by its member"
    if (vector.round, vector.member) != (electorate.round, member):
        return "it is of another round or member"
    members = tuple(sorted(c for c in electorate.committee if c in updates.vectors))
    if member not in members:
        return "its member has no usable update"
    if vector.trainers != tuple(c for c in electorate.trainers if c in updates.vectors):
        return "it does not score exactly the trainers with a usable update"
    if vector.members != tuple(other for other in members if other != member):
        return "it does not score exactly the other members"
    if max([0.0, *vector.distances, *vector.member_distances]) > DISTANCE_LIMIT:
        return "a distance is beyond any that float32 updates can have"
    return None


def why_false(vector: ScoreVector, distance: Callable[[ClientId, ClientId], float]) -> str | None:
    """Say which distance of a score vector is false first, None if all are true.

    Args:
        vector: what a member published, complete.
        distance: squared distance of the updates of a client and a member.

    Returns:
        The client, the published and the recomputed distance, or None.
    """
    published = [*vector.distances, *vector.member_distances]
    for client, claim in zip(vector.trainers + vector.members, published, strict=True):
        truth = distance(client, vector.member)
        if abs(claim - truth) > RELATIVE_TOLERANCE * truth:
            return f"false distance to client {client}: {claim:.9g} published, {truth:.9g} true"
    return None
