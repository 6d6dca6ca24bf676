"""A round as a line of a list, in numbers, whole and in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.history.documents import missing_payloads, read_run
from ledger.history.explain import explain_missing_payloads, explain_round
from ledger.history.queries import RoundPage
from ledger.history.serialise.parts import (
    aggregation_body,
    commitments,
    committee,
    scores_body,
    updates,
    votes_body,
)
from ledger.history.serialise.values import DocumentedRound, end_block, to_hex_or_none
from ledger.protocol.encoding import to_hex

if TYPE_CHECKING:
    from ledger.history.history import FoldedHistory
    from ledger.history.responses.rounds import (
        FullRound,
        RoundExplanation,
        RoundNumbers,
        RoundsPage,
        RoundSummary,
    )
    from ledger.history.round import HistoryRound


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
