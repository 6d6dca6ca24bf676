"""Answers about what clients signed: scores, votes, and which of them were left out, and why.

Two signed statements prove a ban, and the contract has verified them. Refused scores are signed;
the reason is in the round's record, and a quorum has voted for it. Incidents are the claim of the
decision's sender; most of them carry the accused's own signatures. A dropout proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Literal, NotRequired, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ledger.chain.ports import NotServedError
from ledger.history import answers_parts, fields
from ledger.history.answers_parts import AnsweredRound, Base, RoundHeading
from ledger.history.fields import Answer, Response, code_of, doc, finite, phase_name
from ledger.history.round import UpdateOutcome
from ledger.protocol import types
from ledger.protocol.documents.record import (
    MAX_VECTOR_BYTES,
    Incident,
    RefusedScores,
    decode_vector,
)
from ledger.protocol.encoding import to_hex
from ledger.protocol.errors import BlobError, EncodingError
from ledger.protocol.inputs import primary_seat
from ledger.protocol.ledger_state import SignedStatement
from ledger.storage.blobs import BlobReader

if TYPE_CHECKING:
    from ledger.chain.round_ledger import RecordedEvent
    from ledger.history.history import FoldedHistory


class ScoredDistance(Response):
    """One distance of a score vector, as its member published it."""

    client: fields.Client
    distance: Annotated[float | None, doc("null if it is infinite or no number", examples=[0.5])]
    distance_bits: fields.Bits


class Vector(Response):
    """A score vector, from its blob; a refused one may hold any values."""

    round: Annotated[fields.Uint, doc("round in the vector: any number of 64 bits", examples=["2"])]
    member: fields.Client
    base: Base
    trainers: list[ScoredDistance]
    members: list[ScoredDistance]


def score_vector(blobs: BlobReader, digest: types.Digest) -> tuple[Vector | None, bool]:
    """Return a score vector, if the signed digest is of one, and whether its blob was available."""
    try:
        vector = decode_vector(blobs.get(digest, MAX_VECTOR_BYTES))
    except (BlobError, EncodingError) as error:
        return None, isinstance(error, EncodingError)
    return {
        "round": str(vector.round),
        "member": vector.member,
        "base": to_hex(vector.base),
        "trainers": _distances(vector.trainers, vector.distances),
        "members": _distances(vector.members, vector.member_distances),
    }, True


def _distances(
    clients: Iterable[types.ClientId], distances: NDArray[np.float64]
) -> list[ScoredDistance]:
    # The bits are those published: a refused vector may hold infinities and NaN.
    published = zip(clients, distances.tolist(), distances.view("<u8").tolist(), strict=True)
    return [
        {"client": client, "distance": finite(distance), "distance_bits": str(bits)}
        for client, distance, bits in published
    ]


class ScoreClaim(Response):
    """A member's signed claim of its score vector."""

    member: fields.Client
    digest: Annotated[fields.Digest32, doc("sha256 of the score vector's blob")]
    signature: Annotated[fields.Signature65, doc("over EIP-712 `Scores`")]
    counted: Annotated[bool, Field(examples=[True])]
    reason: Annotated[fields.RefusalWhy | None, doc("reason why it was left out")]
    named: fields.NamedClient
    vector: Annotated[
        Vector | None, doc("only with `include=vectors`; null if blob or vector is invalid")
    ]


class ScoresBody(Response):
    """The signed score claims, as the round's record lists them."""

    base: Annotated[Base | None, doc("base in every claim")]
    clients: Annotated[
        list[fields.Client], doc("with a usable update, ascending: the set that every claim names")
    ]
    clients_digest: Annotated[fields.Digest32 | None, doc("set digest of `clients`")]
    claims: list[ScoreClaim]
    left_out: Annotated[fields.Count, doc("claims of an oversized record not shown", examples=[0])]
    scores_root: Annotated[fields.Digest32 | None, doc("root of the counted claims")]


MAX_CLAIMS = 320


def scores_body(view: AnsweredRound, *, with_vectors: bool = False) -> tuple[ScoresBody, bool]:
    """Return the signed score claims without the round's heading; see `scores`."""
    record, decided, blobs = view.documents.record, view.round.decided, view.history.blobs
    claims: list[tuple[types.SignedScores, RefusedScores | None]] = []
    if record is not None:
        claims += ((signed, None) for signed in record.scores)
        claims += ((refused.signed, refused) for refused in record.refused)
    vectors = [
        score_vector(blobs, signed.scores.digest) if with_vectors else (None, True)
        for signed, _ in claims[:MAX_CLAIMS]
    ]
    shown = [_claim(*claim, vector) for claim, (vector, _) in zip(claims, vectors, strict=False)]
    return {
        "base": to_hex(decided.base) if decided else None,
        "clients": list(record.clients) if record else [],
        "clients_digest": to_hex(record.clients_digest) if record else None,
        "claims": shown,
        "left_out": len(claims) - len(shown),
        "scores_root": to_hex(decided.scores_root) if decided else None,
    }, all(is_available for _, is_available in vectors)


def _claim(
    signed: types.SignedScores, refused: RefusedScores | None, vector: Vector | None
) -> ScoreClaim:
    why = None if refused is None else answers_parts.refusal(refused)
    return {
        "member": signed.scores.member,
        "digest": to_hex(signed.scores.digest),
        "signature": to_hex(signed.signature),
        "counted": why is None,
        "reason": None if why is None else why["reason"],
        "named": None if why is None else why["named"],
        "vector": vector,
    }


class ScoresAnswer(ScoresBody, RoundHeading):
    """The signed score claims, as the round's record lists them."""

    record: answers_parts.RecordPointer | None


def scores(view: AnsweredRound, *, with_vectors: bool = False) -> tuple[ScoresAnswer, bool]:
    """Return the signed score claims, and whether every blob that they show was available."""
    body, is_complete = scores_body(view, with_vectors=with_vectors)
    return {**view.heading(), **body, "record": view.record()}, is_complete


class SignedPlace(Response):
    """A member of the committee and its signature."""

    place: fields.Place
    client: fields.Client
    signature: fields.Signature65


class Certificate(Response):
    """One phase's proof, from the call data of `decide`: a request and a quorum of replies."""

    phase: fields.PhaseName
    view: answers_parts.View
    base: Base
    set: Annotated[fields.Digest32, doc("set digest of the clients voted on")]
    result: Annotated[fields.Digest32, doc("signed result, equal in both phases")]
    primary: Annotated[SignedPlace, doc("signed EIP-712 `Request`")]
    replies: Annotated[list[SignedPlace], doc("signed EIP-712 `Reply`")]


class EvidenceVote(Response):
    """A signed vote that proves an incident."""

    kind: fields.VoteName
    base: Base
    set: fields.Digest32
    result: fields.Digest32
    signature: fields.Signature65


def signed_vote(signed: types.SignedVote | SignedStatement, vote: types.Vote) -> EvidenceVote:
    """Return a vote with its signature."""
    return {
        "kind": "Request" if vote.kind is types.VoteKind.REQUEST else "Reply",
        "base": to_hex(vote.base),
        "set": to_hex(vote.set_digest),
        "result": to_hex(vote.result),
        "signature": to_hex(signed.signature),
    }


class IncidentEntry(Response):
    """A member's failure while voting, with its own signed votes as evidence."""

    phase: fields.PhaseName
    view: answers_parts.View
    member: fields.Client
    kind: fields.IncidentWhat
    votes: list[EvidenceVote]
    opening: Annotated[
        answers_parts.Opening | None, doc("opening of a wrong proposal; null for other kinds")
    ]


def incident_entry(incident: Incident) -> IncidentEntry:
    """Return an incident with the accused member's own signed votes."""
    preimage = incident.opening
    return {
        "phase": phase_name(incident.phase),
        "view": incident.view,
        "member": incident.member,
        "kind": code_of(incident.kind),
        "votes": [signed_vote(signed, signed.vote) for signed in incident.votes],
        "opening": None if preimage is None else answers_parts.opening_of(preimage),
    }


class VotesBody(Response):
    """Both certificates, and the reported incidents before them."""

    replies_needed: Annotated[
        fields.Count, doc("equal replies that decide, in addition to the request", examples=[3])
    ]
    certificates: Annotated[
        list[Certificate] | None,
        doc(
            "null where the signatures are not in the contract's call data: an account "
            "with code of its own called it"
        ),
    ]
    incidents: list[IncidentEntry]
    left_out: Annotated[
        fields.Count, doc("incidents of an oversized document not shown", examples=[0])
    ]
    incidents_document: Annotated[
        answers_parts.IncidentsPointer | None, doc("null if none are named")
    ]


MAX_INCIDENTS = 320


def votes_body(view: AnsweredRound) -> VotesBody:
    """Return certificates and incidents without the round's heading; see `votes`."""
    incidents = view.documents.reported_incidents
    return {
        "replies_needed": view.history.fixed.replies,
        "certificates": _certificates(view),
        "incidents": [incident_entry(incident) for incident in incidents[:MAX_INCIDENTS]],
        "left_out": max(0, len(incidents) - MAX_INCIDENTS),
        "incidents_document": view.incidents(),
    }


def _certificates(view: AnsweredRound) -> list[Certificate] | None:
    decided, members = view.round.decided, view.round.committee
    if decided is None:
        return []
    call = view.history.decision_call(view.round)
    if call is None:
        return None
    certificates: list[Certificate] = []
    for phase, own in zip(types.Phase, call.certificates, strict=True):
        primary = primary_seat(view.round.seed, phase, own.view, len(members))
        signers = [place for place in range(len(members)) if own.signers >> place & 1]
        if len(signers) != len(own.replies):
            raise NotServedError(
                f"{len(own.replies)} signatures of {len(signers)} signers, so this is not the "
                "transaction that the contract accepted"
            )
        signatures = zip([primary, *signers], [own.request, *own.replies], strict=True)
        request, *replies = (
            SignedPlace(place=place, client=members[place], signature=to_hex(signature))
            for place, signature in signatures
        )
        certificates.append(
            {
                "phase": phase_name(phase),
                "view": own.view,
                "base": to_hex(decided.base),
                "set": to_hex(own.set_digest),
                "result": to_hex(decided.result()),
                "primary": request,
                "replies": replies,
            }
        )
    return certificates


class VotesAnswer(VotesBody, RoundHeading):
    """Both certificates, and the reported incidents before them."""


def votes(view: AnsweredRound) -> VotesAnswer:
    """Return both certificates, None if another contract sent the decision, and the incidents."""
    return {**view.heading(), **votes_body(view)}


class Statement(Response):
    """One of two signed statements that exclude each other."""

    kind: Literal["Request", "Reply", "Scores"]
    base: Base
    set: Annotated[fields.Digest32, doc("set digest that the statement names")]
    result: Annotated[fields.Digest32 | None, doc("result in a vote; null for scores")]
    digest: Annotated[fields.Digest32 | None, doc("sha256 of the score vector; null for a vote")]
    signature: fields.Signature65


def _statement(signed: SignedStatement) -> Statement:
    statement = signed.statement
    if isinstance(statement, types.Scores):
        return {
            "kind": "Scores",
            "set": to_hex(statement.clients),
            "result": None,
            "digest": to_hex(statement.digest),
            "base": to_hex(statement.base),
            "signature": to_hex(signed.signature),
        }
    vote = signed_vote(signed, statement)
    order = ("kind", "set", "result", "digest", "base", "signature")
    return cast("Statement", {name: vote.get(name) for name in order})


class Ban(Response):
    """Two contradicting statements for one slot, which the contract has verified."""

    block: fields.BlockNumber
    transaction: fields.Digest32
    signed_twice: Annotated[fields.StatementWhat | None, doc("null if the call data are missing")]
    statements: Annotated[list[Statement] | None, doc("both; null if the call data are missing")]


def ban_body(history: FoldedHistory, recorded: RecordedEvent) -> Ban:
    """Return a ban with the two statements that prove it."""
    report = history.ban_report(recorded)
    both = None if report is None else [_statement(report.first), _statement(report.second)]
    return {
        "block": recorded.block_number,
        "transaction": to_hex(recorded.transaction_hash),
        "signed_twice": None if report is None else code_of(report.kind),
        "statements": both,
    }


class RefusedClaim(Response):
    """A signed score claim that does not count."""

    digest: Annotated[fields.Digest32, doc("sha256 of the score vector's blob")]
    signature: Annotated[fields.Signature65, doc("over EIP-712 `Scores`")]
    reason: fields.RefusalWhy
    named: fields.NamedClient


class DropoutEntry(Response):
    """A trainer or a member of a decided round without a usable update."""

    commitment: fields.CommitmentWord
    payload: fields.Payload
    reason: fields.NoUpdateWhy


class EvidenceEntry(Response):
    """One piece of evidence about a client in a round."""

    round: fields.RoundNumber
    client: fields.Client
    kind: fields.EvidenceKind
    ban: Ban | None
    scores: RefusedClaim | None
    incident: IncidentEntry | None
    dropout: NotRequired[Annotated[DropoutEntry, doc("present only for kind `dropout`")]]


class EvidenceAnswer(Answer):
    """A page of the evidence: bans, refused scores, incidents and dropouts, round by round."""

    evidence: list[EvidenceEntry]
    scanned: fields.Scanned
    next_cursor: fields.NextCursor


def round_evidence(view: AnsweredRound) -> Iterator[EvidenceEntry]:
    """Yield the evidence of a round about any client; an empty seat is not a dropout."""
    record = view.documents.record
    for client, recorded in view.round.bans.items():
        yield _evidence(view, client, "ban", ban_body(view.history, recorded))
    for entry in record.refused if record else ():
        signed = entry.signed
        digest, signature = to_hex(signed.scores.digest), to_hex(signed.signature)
        claim = {"digest": digest, "signature": signature, **answers_parts.refusal(entry)}
        yield _evidence(view, signed.scores.member, "refused_scores", claim)
    for incident in view.documents.reported_incidents:
        yield _evidence(view, incident.member, "incident", incident_entry(incident))
    for part in view.parts.all():
        is_out = part.outcome is UpdateOutcome.DROPPED_OUT or part.dropout is not None
        if is_out and not part.empty_seat:
            dropout = answers_parts.part_entry("commitment payload reason", part)
            yield _evidence(view, part.client, "dropout", dropout)


def _evidence(
    view: AnsweredRound, client: types.ClientId, kind: str, what: object
) -> EvidenceEntry:
    parts = {"ban": None, "scores": None, "incident": None, kind.rpartition("_")[2]: what}
    entry = {"round": view.round.round, **parts, "client": client, "kind": kind}
    return cast("EvidenceEntry", entry)
