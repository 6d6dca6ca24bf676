"""Answers about a round, its parts and its evidence, built from the history.

Two signed statements prove a ban, and the contract has verified them. Refused scores are signed;
the reason is in the round's record, for which a quorum has voted. Incidents are the claim of the
decision's sender; most of them carry the accused's own signatures.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import IntEnum
from math import isfinite
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from ledger.chain.addresses import checksum
from ledger.chain.ports import NotServedError
from ledger.history.explain import explain_missing_payloads, explain_round
from ledger.history.queries import RoundPage
from ledger.history.round import Documents, Participation, RoundParts, missing_payloads, read_run
from ledger.io.parsing import picked
from ledger.protocol import encoding
from ledger.protocol.documents.record import RefusedScores, RoundRecord
from ledger.protocol.documents.vector import MAX_VECTOR_BYTES, Incident, decode_vector
from ledger.protocol.encoding import to_hex
from ledger.protocol.errors import BlobError, EncodingError
from ledger.protocol.inputs import primary_seat
from ledger.protocol.judgement import weights_of
from ledger.protocol.ledger_state import RoundDecided, SignedStatement, SubmittedCertificate
from ledger.protocol.types import (
    ClientId,
    Digest,
    Phase,
    RefusalReason,
    Scores,
    SignedScores,
    SignedVote,
    Vote,
    VoteKind,
)
from ledger.storage.blobs import BlobReader

if TYPE_CHECKING:
    from ledger.chain.contract.codec import RecordedEvent
    from ledger.history import answers_rounds as responses
    from ledger.history.answers import (
        Ban,
        EvidenceEntry,
        EvidencePage,
        RefusedClaim,
        Statement,
    )
    from ledger.history.answers_rounds import (
        EndBlock,
        FullRound,
        IncidentsPointer,
        RecordPointer,
        RoundExplanation,
        RoundHeading,
        RoundNumbers,
        RoundsPage,
        RoundSummary,
    )
    from ledger.history.fields import Code, PhaseName, Time
    from ledger.history.history import FoldedHistory
    from ledger.history.round import HistoryRound


_LAST_SECOND = 253_402_300_799
"""Of the year 9999; RFC 3339 has no later one, and a node may send any number."""


@dataclass(frozen=True, slots=True)
class DocumentedRound:
    """One round with its documents, and the history that they come from."""

    history: FoldedHistory
    round: HistoryRound
    documents: Documents

    @staticmethod
    def of(history: FoldedHistory, round_: HistoryRound) -> DocumentedRound:
        return DocumentedRound(history, round_, history.documents(round_))

    @property
    def has_record(self) -> bool:
        """True if the record is available, or the round has none."""
        return self.round.decided is None or self.documents.record is not None

    def heading(self) -> RoundHeading:
        """Return the first fields of every response about a round."""
        return {"round": self.round.round, "status": self.round.status}

    def record(self) -> RecordPointer | None:
        """Return the pointer to the round's record; None where there is none."""
        decided = self.round.decided
        if decided is None:
            return None
        return {"digest": to_hex(decided.record), "available": self.has_record}

    def incidents(self) -> IncidentsPointer | None:
        """Return the pointer to the incidents document; None if the decision names none."""
        decided = self.round.decided
        if decided is None or not self.documents.names_incidents:
            return None
        return {"digest": to_hex(decided.incidents), "available": self.documents.has_incidents}

    def address(self, client: ClientId) -> str:
        return checksum(self.round.registry[client].address)


def to_hex_or_none(data: bytes | None) -> str | None:
    """Return bytes as 0x-hex, None for None."""
    return None if data is None else to_hex(data)


def code_of(code: IntEnum) -> Code:
    """Return a code as programs compare it: its number and its stable name."""
    return {"code": int(code), "name": code.name.lower()}


def finite(number: float) -> float | None:
    """Return a number that JSON can express; None for an infinity or NaN."""
    return number if isfinite(number) else None


def phase_name(phase: Phase) -> PhaseName:
    """Return the name of a phase."""
    return "aggregation" if phase is Phase.AGGREGATION else "election"


def time_of(seconds: int) -> Time:
    """Return a time as Unix seconds and as RFC 3339, which ends with the year 9999."""
    text = None
    if seconds <= _LAST_SECOND:
        text = f"{datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()}Z"
    return {"time": seconds, "at": text}


def end_block(history: FoldedHistory, round_: HistoryRound) -> EndBlock | None:
    """Return the block in which a round ended; None while it is open."""
    ended = round_.ended
    if ended is None:
        return None
    return {
        "number": ended.block_number,
        "hash": to_hex(ended.block_hash),
        "transaction": to_hex(ended.transaction_hash),
        **time_of(history.time_of(ended.block_number)),
    }


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


def rounds_page(history: FoldedHistory, page: RoundPage, *, full: bool = False) -> RoundsPage:
    """Return a page of rounds, each as a line or whole."""
    rounds: list[RoundSummary] | list[FullRound]
    if full:
        rounds = [full_round(DocumentedRound.of(history, round_)) for round_ in page.rounds]
    else:
        rounds = [round_summary(history, round_) for round_ in page.rounds]
    return {"rounds": rounds, "scanned": page.scanned, "next_cursor": page.next_cursor}


def round_summary(history: FoldedHistory, round_: HistoryRound) -> RoundSummary:
    """Return a round's line in a list."""
    decided = round_.decided
    return {
        "round": round_.round,
        "status": round_.status,
        "ranked": len(decided.ranking) if decided else 0,
        "accepted": len(decided.accepted) if decided else 0,
        "views": decided.views if decided else None,
        "model": to_hex(decided.model) if decided else None,
        "ended": end_block(history, round_),
        "links": history.path.round_links(round_.round),
    }


def round_numbers(view: DocumentedRound) -> RoundNumbers:
    """Return a round in numbers."""
    round_, history = view.round, view.history
    decided, end = round_.decided, round_.end
    return {
        **view.heading(),
        "opened_block": round_.opening.opened_block,
        "seed": to_hex(round_.seed),
        "trainers": len(round_.trainers),
        "members": len(round_.committee),
        "committed": len(round_.counted),
        "ranked": len(decided.ranking) if decided else 0,
        "accepted": len(decided.accepted) if decided else 0,
        "banned": list(round_.banned),
        "base": to_hex(decided.base) if decided else None,
        "reveal": to_hex(decided.reveal) if decided else None,
        "views": decided.views if decided else None,
        "model": to_hex(decided.model) if decided else None,
        "next_seed": to_hex_or_none(end.next_seed if end else None),
        "head": to_hex_or_none(end.head if end else None),
        "ended": end_block(history, round_),
        "record": view.record(),
        "incidents": view.incidents(),
        "links": history.path.round_links(round_.round),
    }


def full_round(view: DocumentedRound) -> FullRound:
    """Return a round with all its parts but the score vectors."""
    scores, _ = scores_body(view)
    members = committee(view)
    return {
        **round_numbers(view),
        "parts": {
            "commitments": commitments(view.round),
            "updates": updates(view)["updates"],
            "committee": members["committee"],
            "next_committee": members["next_committee"],
            "aggregation": aggregation_body(view),
            "scores": scores,
            "votes": votes_body(view),
        },
    }


def explanation(view: DocumentedRound) -> RoundExplanation:
    """Return a round in plain words."""
    document = read_run(view.history.blobs, view.history.fixed.config)
    missing = missing_payloads(view.documents, view.history.blobs)
    reports = [view.history.ban_report(recorded) for recorded in view.round.bans]
    sentences = explain_round(view.round, view.documents, document, reports)
    sentences += explain_missing_payloads(view.documents, missing)
    return {**view.heading(), "sentences": sentences}


def evidence_page(
    history: FoldedHistory, page: RoundPage, client: ClientId | None = None
) -> EvidencePage:
    """Return the evidence in the rounds of a page, against one client or against all."""
    entries = [
        entry
        for round_ in page.rounds
        for entry in round_evidence(DocumentedRound.of(history, round_))
    ]
    return {
        "evidence": [entry for entry in entries if client is None or entry["client"] == client],
        "scanned": page.scanned,
        "next_cursor": page.next_cursor,
    }


def round_evidence(view: DocumentedRound) -> list[EvidenceEntry]:
    """Return the evidence in one round: bans, then refused scores, then incidents."""
    bans = zip(view.round.banned, view.round.bans, strict=True)
    record = view.documents.record
    refused, incidents = record.refused if record else (), view.documents.reported_incidents
    return [
        *(_evidence(view, client, "ban", ban_body(view.history, event)) for client, event in bans),
        *(
            _evidence(view, r.signed.scores.member, "refused_scores", _refused_claim(r))
            for r in refused
        ),
        *(_evidence(view, one.member, "incident", incident_entry(one)) for one in incidents),
    ]


def ban_body(history: FoldedHistory, recorded: RecordedEvent) -> Ban:
    """Return a ban with the two statements that prove it."""
    report = history.ban_report(recorded)
    return {
        "block": recorded.block_number,
        "transaction": to_hex(recorded.transaction_hash),
        "signed_twice": None if report is None else code_of(report.kind),
        "statements": None
        if report is None
        else [_statement(report.first), _statement(report.second)],
    }


def _evidence(view: DocumentedRound, client: ClientId, kind: str, what: object) -> EvidenceEntry:
    """Return evidence of one kind; the parts of the others are null."""
    parts = {"ban": None, "scores": None, "incident": None, kind.rpartition("_")[2]: what}
    entry = {"round": view.round.round, **parts, "client": client, "kind": kind}
    return cast("EvidenceEntry", entry)


def _refused_claim(entry: RefusedScores) -> RefusedClaim:
    signed = entry.signed
    digest, signature = to_hex(signed.scores.digest), to_hex(signed.signature)
    return {"digest": digest, "signature": signature, **refusal(entry)}


def _statement(signed: SignedStatement) -> Statement:
    statement = signed.statement
    if isinstance(statement, Scores):
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
