"""Evidence against clients, round by round: bans, refused scores, and incidents while voting.

Two signed statements prove a ban, and the contract has verified them. Refused scores are signed;
the reason is in the round's record, for which a quorum has voted. Incidents are the claim of the
decision's sender; most of them carry the accused's own signatures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.history.serialise.parts import incident_entry, refusal, vote_name
from ledger.history.serialise.values import DocumentedRound, code_of
from ledger.protocol.encoding import to_hex
from ledger.protocol.types import Scores

if TYPE_CHECKING:
    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.history.history import FoldedHistory
    from ledger.history.queries import RoundPage
    from ledger.history.responses.evidence import Ban, EvidenceEntry, EvidencePage, Statement
    from ledger.protocol.documents.incidents import Incident
    from ledger.protocol.documents.record import RefusedScores
    from ledger.protocol.ledger_state import SignedStatement
    from ledger.protocol.types import ClientId


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
    return [
        *(_ban(view, client, recorded) for client, recorded in bans),
        *(_refused_scores(view, entry) for entry in (record.refused if record else ())),
        *(_incident(view, incident) for incident in view.documents.reported_incidents),
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


def _ban(view: DocumentedRound, client: ClientId, recorded: RecordedEvent) -> EvidenceEntry:
    return {
        "round": view.round.round,
        "ban": ban_body(view.history, recorded),
        "scores": None,
        "incident": None,
        "client": client,
        "kind": "ban",
    }


def _refused_scores(view: DocumentedRound, entry: RefusedScores) -> EvidenceEntry:
    return {
        "round": view.round.round,
        "ban": None,
        "scores": {
            "digest": to_hex(entry.signed.scores.digest),
            "signature": to_hex(entry.signed.signature),
            **refusal(entry),
        },
        "incident": None,
        "client": entry.signed.scores.member,
        "kind": "refused_scores",
    }


def _incident(view: DocumentedRound, incident: Incident) -> EvidenceEntry:
    return {
        "round": view.round.round,
        "ban": None,
        "scores": None,
        "incident": incident_entry(incident),
        "client": incident.member,
        "kind": "incident",
    }


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
    return {
        "kind": vote_name(statement.kind),
        "set": to_hex(statement.set_digest),
        "result": to_hex(statement.result),
        "digest": None,
        "base": to_hex(statement.base),
        "signature": to_hex(signed.signature),
    }
