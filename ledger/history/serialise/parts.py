"""The parts of a round: commitments, updates, committee, aggregation, score claims and votes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from ledger.chain.ports import NotServedError
from ledger.history.participation import Participation, RoundParts
from ledger.history.serialise.values import (
    DocumentedRound,
    code_of,
    finite,
    phase_name,
    to_hex_or_none,
)
from ledger.io.json import picked
from ledger.protocol import encoding
from ledger.protocol.consensus import primary_seat
from ledger.protocol.documents.incidents import Incident
from ledger.protocol.documents.record import RefusedScores, RoundRecord
from ledger.protocol.documents.vector import MAX_VECTOR_BYTES, decode_vector
from ledger.protocol.encoding import to_hex
from ledger.protocol.errors import BlobError, EncodingError
from ledger.protocol.judgement import weights_of
from ledger.protocol.ledger_state import RoundDecided, SignedStatement, SubmittedCertificate
from ledger.protocol.types import (
    ClientId,
    Digest,
    Phase,
    RefusalReason,
    SignedScores,
    SignedVote,
    Vote,
    VoteKind,
)
from ledger.storage.blobs import BlobReader

if TYPE_CHECKING:
    from ledger.history.responses import rounds as responses
    from ledger.history.round import HistoryRound

MAX_CLAIMS = 320
MAX_INCIDENTS = 320


def commitments(round_: HistoryRound) -> list[responses.CommitmentEntry]:
    """Return the commitments of a round in the chain's order, so that base and head can be checked.

    Clients that are not active are among them, and commitments after the closing block: the base
    takes those up to that block, the head takes all.
    """
    return [
        {"client": mined.client, "commitment": to_hex(mined.commitment), "block": mined.block}
        for mined in round_.mined
    ]


def updates(view: DocumentedRound) -> responses.RoundUpdates:
    """Return every sampled trainer, ascending, and what became of its update."""
    entries = [_update(part) for part in RoundParts.of(view.round, view.documents).trainers()]
    return {**view.heading(), "updates": entries, "record": view.record()}


def _update(part: Participation) -> responses.UpdateEntry:
    assert part.outcome is not None, "every trainer has one"
    names = "client outcome committed commitment payload rank distance distance_bits reason"
    return cast("responses.UpdateEntry", part_entry(names, part))


def part_entry(names: str, part: Participation, **given: object) -> Any:
    """Return fields of a client's part in a round, with more that are given."""
    reason = None if part.dropout is None else code_of(part.dropout)
    return picked(names, part, **ranking_entry(part), **duties(part), reason=reason, **given)


def ranking_entry(part: Participation) -> responses.Placed:
    """Return rank and distance of an update; all None if it is not ranked."""
    bits = part.distance_bits
    return {
        "rank": part.rank,
        "distance": None if bits is None else finite(encoding.float_from_bits(bits)),
        "distance_bits": None if bits is None else str(bits),
    }


def committee(view: DocumentedRound) -> responses.RoundCommittee:
    """Return the members by their places, with what they did, and the next committee."""
    following = view.round.end.next_committee if view.round.end else ()
    return {
        **view.heading(),
        "committee": [
            _member(view, place, part)
            for place, part in enumerate(RoundParts.of(view.round, view.documents).members())
        ],
        "next_committee": [
            {"place": place, "client": client, "address": view.address(client)}
            for place, client in enumerate(following)
        ],
        "record": view.record(),
    }


_MEMBER = (
    "place client address empty_seat committed commitment payload reason "
    "scores refused voted primary_of incidents"
)


def _member(view: DocumentedRound, place: int, part: Participation) -> responses.CommitteeMember:
    given = part_entry(_MEMBER, part, place=place, address=view.address(part.client))
    return cast("responses.CommitteeMember", given)


def duties(part: Participation) -> responses.Duties:
    """Return the scores, votes and incidents of a member."""
    return {
        "scores": part.scores,
        "refused": [refusal(entry) for entry in part.refused],
        "voted": [phase_name(phase) for phase in part.voted],
        "primary_of": [phase_name(phase) for phase in part.primary_of],
        "incidents": [
            {
                "phase": phase_name(incident.phase),
                "view": incident.view,
                "kind": code_of(incident.kind),
            }
            for incident in part.incidents
        ],
    }


def refusal(entry: RefusedScores) -> responses.Refusal:
    """Return why scores do not count, and the client whose distance is false if that is why."""
    is_false = entry.reason is RefusalReason.FALSE_DISTANCE
    return {"reason": code_of(entry.reason), "named": entry.client if is_false else None}


def aggregation(view: DocumentedRound) -> responses.RoundAggregation:
    """Return what was aggregated; all empty unless the round is decided."""
    answer: Any = {**view.heading(), **aggregation_body(view)}
    result = answer.pop("result")  # comes last
    return cast("responses.RoundAggregation", {**answer, "record": view.record(), "result": result})


def aggregation_body(view: DocumentedRound) -> responses.AggregationBody:
    """Return what was aggregated, without the round's heading and record."""
    decided = view.round.decided
    opening = _opening(None if decided is None else decided.opening())
    answer = {
        "form": code_of(view.history.fixed.form),
        "accepted": _accepted(view, decided.accepted if decided else ()),
        "set": None if decided is None else to_hex(encoding.set_digest(decided.accepted)),
        **{name: digest for name, digest in opening.items() if name != "record"},
        "result": None if decided is None else to_hex(decided.result()),
    }
    return cast("responses.AggregationBody", answer)


def _accepted(
    view: DocumentedRound, accepted: tuple[ClientId, ...]
) -> list[responses.AcceptedUpdate]:
    """Return S_a in ranking order, with each share, exactly and as a float64."""
    weights = weights_of(view.history.fixed.form, view.round.registry, accepted)
    total = sum(weights.values())
    payloads, places = view.documents.payloads, view.round.places
    return [
        {
            "client": client,
            "rank": places[client][0],
            "payload": to_hex_or_none(payloads.get(client)),
            "weight": {"numerator": str(own), "denominator": str(total), "value": own / total},
        }
        for client, own in weights.items()
    ]


def scores(
    view: DocumentedRound, *, with_vectors: bool = False
) -> tuple[responses.RoundScores, bool]:
    """Return the signed score claims, and whether every blob that they show was available."""
    body, is_complete = scores_body(view, with_vectors=with_vectors)
    return {**view.heading(), **body, "record": view.record()}, is_complete


def scores_body(
    view: DocumentedRound, *, with_vectors: bool = False
) -> tuple[responses.ScoresBody, bool]:
    """Return the signed score claims without the round's heading; see `scores`."""
    record, decided = view.documents.record, view.round.decided
    claims = _claims(record) if record is not None else []
    is_complete = True
    shown: list[responses.ScoreClaim] = []
    for signed, refused in claims[:MAX_CLAIMS]:
        vector = None
        if with_vectors:
            vector, is_available = score_vector(view.history.blobs, signed.scores.digest)
            is_complete = is_complete and is_available
        shown.append(_claim(signed, refused, vector))
    return {
        "base": to_hex(decided.base) if decided else None,
        "clients": list(record.clients) if record else [],
        "clients_digest": to_hex(record.clients_digest) if record else None,
        "claims": shown,
        "left_out": len(claims) - len(shown),
        "scores_root": to_hex(decided.scores_root) if decided else None,
    }, is_complete


def _claims(record: RoundRecord) -> list[tuple[SignedScores, RefusedScores | None]]:
    """Return all claims of a record, each with its refusal if it has one."""
    counted: list[tuple[SignedScores, RefusedScores | None]]
    counted = [(signed, None) for signed in record.scores]
    return counted + [(refused.signed, refused) for refused in record.refused]


def _claim(
    signed: SignedScores, refused: RefusedScores | None, vector: responses.Vector | None
) -> responses.ScoreClaim:
    why = None if refused is None else refusal(refused)
    return {
        "member": signed.scores.member,
        "digest": to_hex(signed.scores.digest),
        "signature": to_hex(signed.signature),
        "counted": why is None,
        "reason": None if why is None else why["reason"],
        "named": None if why is None else why["named"],
        "vector": vector,
    }


def score_vector(blobs: BlobReader, digest: Digest) -> tuple[responses.Vector | None, bool]:
    """Return a score vector, and whether its blob was available.

    Args:
        digest: its sha256; a member may sign the digest of anything.
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
        "base": to_hex(vector.base),
        "trainers": _distances(vector.trainers, vector.distances),
        "members": _distances(vector.members, vector.member_distances),
    }, True


def _distances(
    clients: Iterable[ClientId], distances: NDArray[np.float64]
) -> list[responses.ScoredDistance]:
    # The bits are those published: a refused vector may hold infinities and NaN.
    published = zip(clients, distances.tolist(), distances.view("<u8").tolist(), strict=True)
    return [
        {"client": client, "distance": finite(distance), "distance_bits": str(bits)}
        for client, distance, bits in published
    ]


def votes(view: DocumentedRound) -> responses.RoundVotes:
    """Return both certificates, None if another contract sent the decision, and the incidents."""
    return {**view.heading(), **votes_body(view)}


def votes_body(view: DocumentedRound) -> responses.VotesBody:
    """Return certificates and incidents without the round's heading; see `votes`."""
    incidents = view.documents.reported_incidents
    return {
        "replies_needed": view.history.fixed.replies,
        "certificates": _certificates(view),
        "incidents": [incident_entry(incident) for incident in incidents[:MAX_INCIDENTS]],
        "left_out": max(0, len(incidents) - MAX_INCIDENTS),
        "incidents_document": view.incidents(),
    }


def _certificates(view: DocumentedRound) -> list[responses.Certificate] | None:
    decided = view.round.decided
    if decided is None:
        return []
    call = view.history.decision_call(view.round)
    if call is None:
        return None
    return [
        _certificate(view, phase, certificate, decided)
        for phase, certificate in zip(Phase, call.certificates, strict=True)
    ]


def _certificate(
    view: DocumentedRound, phase: Phase, certificate: SubmittedCertificate, decided: RoundDecided
) -> responses.Certificate:
    members = view.round.committee
    primary = primary_seat(view.round.seed, phase, certificate.view, len(members))
    signers = [place for place in range(len(members)) if certificate.signers >> place & 1]
    if len(signers) != len(certificate.replies):
        raise NotServedError(
            f"{len(certificate.replies)} signatures of {len(signers)} signers: "
            "this is not the transaction that the contract took"
        )
    return {
        "phase": phase_name(phase),
        "view": certificate.view,
        "base": to_hex(decided.base),
        "set": to_hex(certificate.set_digest),
        "result": to_hex(decided.result()),
        "primary": _signed(members, primary, certificate.request),
        "replies": [
            _signed(members, place, reply)
            for place, reply in zip(signers, certificate.replies, strict=True)
        ],
    }


def _signed(members: tuple[ClientId, ...], place: int, signature: bytes) -> responses.SignedPlace:
    return {"place": place, "client": members[place], "signature": to_hex(signature)}


def incident_entry(incident: Incident) -> responses.IncidentEntry:
    """Return an incident with the accused member's own signed votes."""
    preimage = incident.opening
    return {
        "phase": phase_name(incident.phase),
        "view": incident.view,
        "member": incident.member,
        "kind": code_of(incident.kind),
        "votes": [signed_vote(signed, signed.vote) for signed in incident.votes],
        "opening": None if preimage is None else cast("responses.Opening", _opening(preimage)),
    }


def signed_vote(signed: SignedVote | SignedStatement, vote: Vote) -> responses.EvidenceVote:
    """Return a vote with its signature."""
    return {
        "kind": "Request" if vote.kind is VoteKind.REQUEST else "Reply",
        "base": to_hex(vote.base),
        "set": to_hex(vote.set_digest),
        "result": to_hex(vote.result),
        "signature": to_hex(signed.signature),
    }


def _opening(preimage: encoding.ResultPreimage | None) -> dict[str, str | None]:
    names = [field.name for field in fields(encoding.ResultPreimage)]
    return {name: None if preimage is None else to_hex(getattr(preimage, name)) for name in names}
