"""Evidence against clients, round by round: bans, refused scores, and incidents while voting.

Two signed statements prove a ban, and the contract has verified them. Refused scores are signed;
the reason is in the round's record, for which a quorum has voted. Incidents are the claim of the
decision's sender; most of them carry the accused's own signatures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ledger.history.queries import RoundPage
from ledger.history.serialise.parts import incident_entry, refusal, signed_vote
from ledger.history.serialise.values import DocumentedRound, code_of
from ledger.protocol.documents.record import RefusedScores
from ledger.protocol.encoding import to_hex
from ledger.protocol.ledger_state import SignedStatement
from ledger.protocol.types import ClientId, Scores

if TYPE_CHECKING:
    from ledger.chain.contract.codec import RecordedEvent
    from ledger.history.history import FoldedHistory
    from ledger.history.responses.evidence import (
        Ban,
        EvidenceEntry,
        EvidencePage,
        RefusedClaim,
        Statement,
    )


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
