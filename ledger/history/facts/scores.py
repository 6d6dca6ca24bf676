"""The members' signed score claims, as the round's record has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.history.facts.committee import refusal_facts
from ledger.history.facts.words import finite, hexed
from ledger.protocol.documents.vector import MAX_VECTOR_BYTES, decode_vector
from ledger.protocol.errors import BlobError, EncodingError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from ledger.history.facts.words import Facts, Told
    from ledger.protocol.documents.record import RefusedScores, RoundRecord
    from ledger.protocol.types import ClientId, Digest, SignedScores
    from ledger.storage.blobs import BlobReader

MAX_CLAIMS = 320


def scores_facts(told: Told, *, with_vectors: bool = False) -> tuple[Facts, bool]:
    """Return the signed score claims of a round.

    Args:
        told: the round.
        with_vectors: whether the score vectors are shown too.

    Returns:
        The facts, and whether no blob was missing that they should have shown.
    """
    record, decided = told.documents.record, told.one.decided
    claims = _claims(record) if record is not None else []
    whole = True
    shown: list[Facts] = []
    for signed, refused in claims[:MAX_CLAIMS]:
        vector = None
        if with_vectors:
            vector, found = vector_facts(told.history.blobs, signed.scores.digest)
            whole = whole and found
        shown.append(_claim(signed, refused) | {"vector": vector})
    return told.heading() | {
        "base": hexed(decided.base) if decided else None,
        "clients": list(record.clients) if record else [],
        "clients_digest": hexed(record.clients_digest) if record else None,
        "claims": shown,
        "left_out": len(claims) - len(shown),
        "scores_root": hexed(decided.scores_root) if decided else None,
        "record": told.record(),
    }, whole


def _claims(record: RoundRecord) -> list[tuple[SignedScores, RefusedScores | None]]:
    """Return all claims of a record, each with its refusal if it has one."""
    counted: list[tuple[SignedScores, RefusedScores | None]]
    counted = [(signed, None) for signed in record.scores]
    return counted + [(refused.signed, refused) for refused in record.refused]


def _claim(signed: SignedScores, refused: RefusedScores | None) -> Facts:
    why = {"reason": None, "named": None} if refused is None else refusal_facts(refused)
    return {
        "member": signed.scores.member,
        "digest": hexed(signed.scores.digest),
        "signature": hexed(signed.signature),
        "counted": refused is None,
        **why,
    }


def vector_facts(blobs: BlobReader, digest: Digest) -> tuple[Facts | None, bool]:
    """Return a score vector, and whether its blob was there.

    Args:
        blobs: where it should be.
        digest: its sha256; what a member signed under it may be anything.
    """
    try:
        data = blobs.get(digest, MAX_VECTOR_BYTES)
    except BlobError:
        return None, False
    try:
        vector = decode_vector(data)
    except EncodingError:
        return None, True
    return {
        "round": str(vector.round),
        "member": vector.member,
        "base": hexed(vector.base),
        "trainers": _distances(vector.trainers, vector.distances),
        "members": _distances(vector.members, vector.member_distances),
    }, True


def _distances(clients: Iterable[ClientId], distances: NDArray[np.float64]) -> list[Facts]:
    # The bits are those published: a refused vector may hold infinities and what is no number.
    published = zip(clients, distances.tolist(), distances.view("<u8").tolist(), strict=True)
    return [
        {
            "client": client,
            "distance": finite(distance),
            "distance_bits": str(bits),
        }
        for client, distance, bits in published
    ]
