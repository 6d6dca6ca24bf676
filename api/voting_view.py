"""Scores and votes of a round: the signed claims of its record and its certificates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from api.problems import VOTES_NOT_FOUND, ProblemError
from api.reading import hexed
from api.round_view import MAX_REASON
from api.schemas_rounds import (
    Certificate,
    EvidenceVote,
    IncidentEntry,
    ScoreClaim,
    ScoredDistance,
    ScoresAnswer,
    SignedPlace,
    Vector,
    VotesAnswer,
)
from ledger.protocol import encoding
from ledger.protocol.consensus import primary_place, quorum
from ledger.protocol.documents import MAX_SCORES_BYTES, decode_score_vector
from ledger.protocol.errors import BlobError, ChainError, EncodingError
from ledger.protocol.types import NO_DIGEST, Phase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from api.round_view import RoundView
    from ledger.blobs.store import BlobReader
    from ledger.chain.committee_ledger import DecideCall
    from ledger.protocol.documents import Incident, RoundRecord
    from ledger.protocol.ledger_state import SubmittedCertificate
    from ledger.protocol.types import ClientId, Digest, SignedScores

MAX_CLAIMS = 320
MAX_INCIDENTS = 320
MAX_EVIDENCE = 4


def scores_answer(view: RoundView, *, with_vectors: bool) -> tuple[ScoresAnswer, bool]:
    """Return the signed score claims of a round.

    Args:
        view: the round.
        with_vectors: whether the score vectors are shown too.

    Returns:
        The answer, and whether no blob was missing that it should have shown.
    """
    record, decided = _record(view), view.history.decided
    claims: list[tuple[SignedScores, str | None]] = []
    if record is not None:
        claims += [(signed, None) for signed in record.scores]
        claims += [(entry.signed, entry.reason[:MAX_REASON]) for entry in record.refused]
    whole = True
    shown: list[ScoreClaim] = []
    for signed, reason in claims[:MAX_CLAIMS]:
        vector = None
        if with_vectors:
            vector, found = _vector(view.reading.service.blobs, signed.scores.digest)
            whole = whole and found
        shown.append(
            ScoreClaim(
                member=signed.scores.member,
                digest=hexed(signed.scores.digest),
                signature=hexed(signed.signature),
                counted=reason is None,
                reason=reason,
                vector=vector,
            )
        )
    answer = ScoresAnswer(
        **view.heading,
        claims=tuple(shown),
        left_out=len(claims) - len(shown),
        scores_root=hexed(decided.scores_root) if decided else None,
        record=view.record,
    )
    return answer, whole


def _vector(blobs: BlobReader, digest: Digest) -> tuple[Vector | None, bool]:
    """Return a score vector, and whether its blob was there."""
    try:
        data = blobs.get(digest, MAX_SCORES_BYTES)
    except BlobError:
        return None, False
    try:
        vector = decode_score_vector(data)
    except EncodingError:
        return None, True
    return Vector(
        trainers=_distances(vector.trainers, vector.distances.tolist()),
        members=_distances(vector.members, vector.member_distances.tolist()),
    ), True


def _distances(
    clients: Iterable[ClientId], distances: Iterable[float]
) -> tuple[ScoredDistance, ...]:
    return tuple(
        ScoredDistance(
            client=client, distance=distance, distance_bits=str(encoding.float_bits(distance))
        )
        for client, distance in zip(clients, distances, strict=True)
    )


def votes_answer(view: RoundView) -> VotesAnswer:
    """Return both certificates of a round and the incidents on the way to them.

    Args:
        view: the round.

    Raises:
        ProblemError: another contract called `decide`: the call data is not the transaction's.
        ChainError: the chain cannot be read.
    """
    record = _record(view)
    incidents = record.incidents if record is not None else ()
    return VotesAnswer(
        **view.heading,
        quorum=quorum(len(view.history.committee)) if view.history.committee else 0,
        certificates=_certificates(view),
        incidents=tuple(_incident(incident) for incident in incidents[:MAX_INCIDENTS]),
        left_out=max(0, len(incidents) - MAX_INCIDENTS),
        record=view.record,
    )


def _certificates(view: RoundView) -> tuple[Certificate, ...]:
    decided = view.history.decided
    if decided is None:
        return ()
    first, second = _call(view).certificates
    return (
        _certificate(view, Phase.AGGREGATION, first, decided.aggregation_result()),
        _certificate(view, Phase.ELECTION, second, NO_DIGEST),
    )


def _call(view: RoundView) -> DecideCall:
    ended = view.history.ended
    assert ended is not None, "a decided round has ended"
    try:
        return view.served.ledger.decide_call(ended.transaction_hash)
    except ChainError as error:
        transaction = view.reading.chain.transaction(ended.transaction_hash)
        if transaction.to == view.served.manifest.address:
            raise
        detail = f"transaction {hexed(ended.transaction_hash)} calls decide from another contract"
        raise ProblemError(VOTES_NOT_FOUND, detail) from error


def _certificate(
    view: RoundView, phase: Phase, certificate: SubmittedCertificate, result: Digest
) -> Certificate:
    committee = view.history.committee
    primary = primary_place(view.history.seed, phase, certificate.view, len(committee))
    signers = [place for place in range(len(committee)) if certificate.signers >> place & 1]
    return Certificate(
        phase=_phase_name(phase),
        view=certificate.view,
        timestamp=certificate.timestamp,
        set=hexed(certificate.set_digest),
        result=hexed(result),
        primary=_signed(committee, primary, certificate.request),
        replies=tuple(
            _signed(committee, place, reply)
            for place, reply in zip(signers, certificate.replies, strict=True)
        ),
    )


def _signed(committee: tuple[ClientId, ...], place: int, signature: bytes) -> SignedPlace:
    return SignedPlace(place=place, client=committee[place], signature=hexed(signature))


def _incident(incident: Incident) -> IncidentEntry:
    return IncidentEntry(
        phase=_phase_name(incident.phase),
        view=incident.view,
        member=incident.member,
        kind=incident.kind[:MAX_REASON],
        votes=tuple(
            EvidenceVote(
                kind="Request" if signed.vote.kind == "Request" else "Reply",
                timestamp=signed.vote.timestamp,
                set=hexed(signed.vote.set_digest),
                result=hexed(signed.vote.result),
                member=signed.member,
                signature=hexed(signed.signature),
            )
            for signed in incident.votes[:MAX_EVIDENCE]
        ),
    )


def _phase_name(phase: Phase) -> Literal["aggregation", "election"]:
    return "aggregation" if phase is Phase.AGGREGATION else "election"


def _record(view: RoundView) -> RoundRecord | None:
    """Return the round's record, None if there is none or it is another round's."""
    return view.history.record if view.record is not None and view.record.available else None
