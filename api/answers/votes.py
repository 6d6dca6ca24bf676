"""Scores and votes of a round: the signed claims of its record and its certificates."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Literal

from api.answers.round import phase_name
from api.http.problems import VOTES_NOT_FOUND, ProblemError
from api.reading import hexed
from api.schemas.rounds import (
    Certificate,
    EvidenceVote,
    IncidentEntry,
    Opening,
    ScoreClaim,
    ScoredDistance,
    ScoresAnswer,
    SignedPlace,
    Vector,
    VotesAnswer,
)
from api.schemas.words import IncidentWhat, RefusalWhy, name_of
from ledger.chain.contract.calls import DecideCall
from ledger.chain.ports import NotServedError
from ledger.protocol.consensus import primary_place
from ledger.protocol.documents.vector import MAX_VECTOR_BYTES, decode_vector
from ledger.protocol.errors import BlobError, EncodingError
from ledger.protocol.types import Phase, RefusalReason, VoteKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from api.answers.round import RoundView
    from ledger.blobs.store import BlobReader
    from ledger.protocol import encoding
    from ledger.protocol.documents.incidents import Incident
    from ledger.protocol.documents.record import RefusedScores, RoundRecord
    from ledger.protocol.ledger_state import SubmittedCertificate
    from ledger.protocol.types import ClientId, Digest, SignedScores, SignedVote

MAX_CLAIMS = 320
MAX_INCIDENTS = 320


def scores_answer(view: RoundView, *, with_vectors: bool) -> tuple[ScoresAnswer, bool]:
    """Return the signed score claims of a round.

    Args:
        view: the round.
        with_vectors: whether the score vectors are shown too.

    Returns:
        The answer, and whether no blob was missing that it should have shown.
    """
    record, decided = view.record, view.history.decided
    claims = _claims(record) if record is not None else []
    whole = True
    shown: list[ScoreClaim] = []
    for signed, refused in claims[:MAX_CLAIMS]:
        vector = None
        if with_vectors:
            vector, found = vector_shown(view.reading.service.blobs, signed.scores.digest)
            whole = whole and found
        shown.append(_claim(signed, refused, vector))
    answer = ScoresAnswer(
        **view.heading,
        base=hexed(decided.base) if decided else None,
        clients=record.clients if record else (),
        clients_digest=hexed(record.clients_digest) if record else None,
        claims=tuple(shown),
        left_out=len(claims) - len(shown),
        scores_root=hexed(decided.scores_root) if decided else None,
        record=view.record_pointer,
    )
    return answer, whole


def _claims(record: RoundRecord) -> list[tuple[SignedScores, RefusedScores | None]]:
    """Return all claims of a record, each with its refusal if it has one."""
    counted: list[tuple[SignedScores, RefusedScores | None]]
    counted = [(signed, None) for signed in record.scores]
    return counted + [(refused.signed, refused) for refused in record.refused]


def _claim(
    signed: SignedScores, refused: RefusedScores | None, vector: Vector | None
) -> ScoreClaim:
    reason = None if refused is None else refused.reason
    is_false = refused is not None and reason is RefusalReason.FALSE_DISTANCE
    return ScoreClaim(
        member=signed.scores.member,
        digest=hexed(signed.scores.digest),
        signature=hexed(signed.signature),
        counted=reason is None,
        reason=None if reason is None else RefusalWhy(code=reason, name=name_of(reason)),
        named=refused.client if refused is not None and is_false else None,
        vector=vector,
    )


def vector_shown(blobs: BlobReader, digest: Digest) -> tuple[Vector | None, bool]:
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
    return Vector(
        round=str(vector.round),
        member=vector.member,
        base=hexed(vector.base),
        trainers=_distances(vector.trainers, vector.distances),
        members=_distances(vector.members, vector.member_distances),
    ), True


def _distances(
    clients: Iterable[ClientId], distances: NDArray[np.float64]
) -> tuple[ScoredDistance, ...]:
    # The bits are those published: a refused vector may hold infinities and what is no number.
    published = zip(clients, distances.tolist(), distances.view("<u8").tolist(), strict=True)
    return tuple(
        ScoredDistance(
            client=client,
            distance=distance if isfinite(distance) else None,
            distance_bits=str(bits),
        )
        for client, distance, bits in published
    )


def votes_answer(view: RoundView) -> VotesAnswer:
    """Return both certificates of a round and the incidents on the way to them.

    Args:
        view: the round.

    Raises:
        ProblemError: the transaction was sent to something else, which called the contract.
        ChainError: the chain cannot be read.
    """
    document = view.history.incidents
    incidents = document.incidents if document is not None else ()
    return VotesAnswer(
        **view.heading,
        replies_needed=view.served.sizes.replies,
        certificates=_certificates(view),
        incidents=tuple(_incident(incident) for incident in incidents[:MAX_INCIDENTS]),
        left_out=max(0, len(incidents) - MAX_INCIDENTS),
        incidents_document=view.incidents_pointer,
    )


def _certificates(view: RoundView) -> tuple[Certificate, ...]:
    if view.history.decided is None:
        return ()
    decided, call = view.history.decided, _call(view)
    result = decided.result()
    return tuple(
        _certificate(view, phase, certificate, (decided.base, result))
        for phase, certificate in zip(Phase, call.certificates, strict=True)
    )


def _call(view: RoundView) -> DecideCall:
    """Return the transaction that decided the round.

    Raises:
        ProblemError: its call data is not the contract's.
        NotServedError: the chain does not have it, or another in its place.
    """
    ended = view.history.ended
    if ended is None:
        raise NotServedError(f"round {view.history.round} is decided, but no log says where")
    call = view.served.ledger.call_of(ended.transaction_hash)
    if call is None:
        where = f"transaction {hexed(ended.transaction_hash)}"
        detail = f"{where} is not to the contract: an account with code of its own called it"
        raise ProblemError(VOTES_NOT_FOUND, detail)
    if not isinstance(call, DecideCall):
        raise NotServedError(f"transaction {hexed(ended.transaction_hash)} does not call decide")
    return call


def _certificate(
    view: RoundView,
    phase: Phase,
    certificate: SubmittedCertificate,
    about: tuple[Digest, Digest],
) -> Certificate:
    committee = view.history.committee
    primary = primary_place(view.history.seed, phase, certificate.view, len(committee))
    signers = [place for place in range(len(committee)) if certificate.signers >> place & 1]
    if len(signers) != len(certificate.replies):
        raise NotServedError(
            f"{len(certificate.replies)} signatures of {len(signers)} signers: "
            "this is not the transaction that the contract took"
        )
    base, result = about
    return Certificate(
        phase=phase_name(phase),
        view=certificate.view,
        base=hexed(base),
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
        phase=phase_name(incident.phase),
        view=incident.view,
        member=incident.member,
        kind=IncidentWhat(code=incident.kind, name=name_of(incident.kind)),
        votes=tuple(map(_evidence, incident.votes)),
        opening=None if incident.opening is None else _opening(incident.opening),
    )


def _evidence(signed: SignedVote) -> EvidenceVote:
    return EvidenceVote(
        kind=_vote_name(signed.vote.kind),
        base=hexed(signed.vote.base),
        set=hexed(signed.vote.set_digest),
        result=hexed(signed.vote.result),
        signature=hexed(signed.signature),
    )


def _vote_name(kind: VoteKind) -> Literal["Request", "Reply"]:
    return "Request" if kind is VoteKind.REQUEST else "Reply"


def _opening(opening: encoding.Opening) -> Opening:
    return Opening(
        model=hexed(opening.model),
        updates_root=hexed(opening.updates_root),
        scores_root=hexed(opening.scores_root),
        ranking_digest=hexed(opening.ranking_digest),
        threshold_bits=str(opening.threshold_bits),
        reveal=hexed(opening.reveal),
        record=hexed(opening.record),
    )
