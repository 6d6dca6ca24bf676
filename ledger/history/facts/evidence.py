"""What is held against clients, round by round: bans, refused scores, and incidents while voting.

A ban is proven by two signed statements, which the contract has verified. Refused scores are
signed; why they do not count, the round's record says, which a quorum has voted for. Incidents are
the word of whoever sent the decision; most of them carry the accused's own signatures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.history.facts.committee import refusal_facts
from ledger.history.facts.votes import incident_facts
from ledger.history.facts.words import Told, coded, hexed
from ledger.protocol.types import Scores, VoteKind

if TYPE_CHECKING:
    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.history.facts.words import Facts
    from ledger.history.queries import RoundPage
    from ledger.history.source import HistorySource
    from ledger.protocol.ledger_state import EquivocationReport, SignedStatement
    from ledger.protocol.types import ClientId


def evidence_facts(
    history: HistorySource, page: RoundPage, client: ClientId | None = None
) -> Facts:
    """Return what is held against clients in the rounds of a page; rounds without are left out.

    Args:
        history: of the deployment.
        page: rounds that are looked at.
        client: against whom; None for anybody.
    """
    rounds = [history.round(one.round) or one for one in page.rounds]
    entries = [entry for one in rounds for entry in round_evidence(Told.of(history, one))]
    return {
        "evidence": [one for one in entries if client is None or one["client"] == client],
        "scanned": page.scanned,
        "next_cursor": page.next_cursor,
    }


def round_evidence(told: Told) -> list[Facts]:
    """Return what is held against clients in one round, in the order: bans, scores, incidents.

    Args:
        told: the round.
    """
    one = told.one
    empty = {"round": one.round, "ban": None, "scores": None, "incident": None}
    bans = [_ban(told, *ban) for ban in zip(one.banned, one.bans, strict=True)]
    refused = told.documents.record.refused if told.documents.record else ()
    scores = [
        {
            "client": entry.signed.scores.member,
            "kind": "refused_scores",
            "scores": {
                "digest": hexed(entry.signed.scores.digest),
                "signature": hexed(entry.signed.signature),
                **refusal_facts(entry),
            },
        }
        for entry in refused
    ]
    incidents = [
        {"client": said.member, "kind": "incident", "incident": incident_facts(said)}
        for said in told.documents.reported_incidents
    ]
    return [empty | entry for entry in (*bans, *scores, *incidents)]


def _ban(told: Told, client: ClientId, recorded: RecordedEvent) -> Facts:
    report = told.history.ban_report(recorded)
    return {
        "client": client,
        "kind": "ban",
        "ban": {
            "block": recorded.block_number,
            "transaction": hexed(recorded.transaction_hash),
            "signed_twice": None if report is None else coded(report.kind),
            "statements": None if report is None else _statements(report),
        },
    }


def _statements(report: EquivocationReport) -> list[Facts]:
    return [_statement(one) for one in (report.first, report.second)]


def _statement(signed: SignedStatement) -> Facts:
    statement = signed.statement
    if isinstance(statement, Scores):
        about = {"kind": "Scores", "set": hexed(statement.clients), "result": None}
        about |= {"digest": hexed(statement.digest)}
    else:
        kind = "Request" if statement.kind is VoteKind.REQUEST else "Reply"
        about = {"kind": kind, "set": hexed(statement.set_digest)}
        about |= {"result": hexed(statement.result), "digest": None}
    return about | {"base": hexed(statement.base), "signature": hexed(signed.signature)}
