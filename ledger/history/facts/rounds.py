"""A round's line in a list, the round in numbers, and all that is known of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.history.documents import missing_payloads, read_run
from ledger.history.explain import explain_missing_payloads, explain_round
from ledger.history.facts.aggregation import aggregation_facts
from ledger.history.facts.commitments import commitments_facts
from ledger.history.facts.committee import committee_facts
from ledger.history.facts.scores import scores_facts
from ledger.history.facts.updates import updates_facts
from ledger.history.facts.votes import votes_facts
from ledger.history.facts.words import Told, ended_facts, hexed, hexed_or_none

if TYPE_CHECKING:
    from ledger.history.facts.words import Facts
    from ledger.history.queries import RoundPage
    from ledger.history.round import Round
    from ledger.history.source import HistorySource


def page_facts(history: HistorySource, page: RoundPage, *, full: bool = False) -> Facts:
    """Return a page of rounds.

    Args:
        history: of the deployment.
        page: its rounds.
        full: whether all that is known of each is told, not only its line.
    """
    return {
        "rounds": [
            full_facts(_whole(history, one)) if full else line_facts(history, one)
            for one in page.rounds
        ],
        "scanned": page.scanned,
        "next_cursor": page.next_cursor,
    }


def line_facts(history: HistorySource, one: Round) -> Facts:
    """Return a round's line in the list.

    Args:
        history: of the deployment.
        one: the round, by its opening and its end.
    """
    decided = one.decided
    return {
        "round": one.round,
        "status": one.status.value,
        "ranked": len(decided.ranking) if decided else 0,
        "accepted": len(decided.accepted) if decided else 0,
        "views": list(decided.views) if decided else None,
        "model": hexed(decided.model) if decided else None,
        "ended": ended_facts(history, one),
        "links": history.path.round_links(one.round),
    }


def round_facts(told: Told) -> Facts:
    """Return a round in numbers.

    Args:
        told: the round.
    """
    one, history = told.one, told.history
    decided, end = one.decided, one.end
    return told.heading() | {
        "opened_block": one.opening.opened_block,
        "seed": hexed(one.seed),
        "trainers": len(one.trainers),
        "members": len(one.committee),
        "committed": len(one.counted),
        "ranked": len(decided.ranking) if decided else 0,
        "accepted": len(decided.accepted) if decided else 0,
        "banned": list(one.banned),
        "base": hexed(decided.base) if decided else None,
        "reveal": hexed(decided.reveal) if decided else None,
        "views": list(decided.views) if decided else None,
        "model": hexed(decided.model) if decided else None,
        "next_seed": hexed_or_none(end.next_seed if end else None),
        "head": hexed_or_none(end.head if end else None),
        "ended": ended_facts(history, one),
        "record": told.record(),
        "incidents": told.incidents(),
        "links": history.path.round_links(one.round),
    }


def full_facts(told: Told) -> Facts:
    """Return all that is known of a round: its numbers, and each part but the score vectors.

    Args:
        told: the round.
    """
    scores, _ = scores_facts(told)
    committee = committee_facts(told)
    parts = {
        "commitments": commitments_facts(told.one),
        "updates": updates_facts(told)["updates"],
        **{name: committee[name] for name in ("committee", "next_committee")},
        "aggregation": aggregation_facts(told),
        "scores": scores,
        "votes": votes_facts(told),
    }
    heading = {*told.heading(), "record"}
    for part in ("aggregation", "scores", "votes"):
        parts[part] = {k: v for k, v in parts[part].items() if k not in heading}
    return round_facts(told) | {"parts": parts}


def explanation_facts(told: Told) -> Facts:
    """Return a round in plain words.

    Args:
        told: the round.
    """
    document = read_run(told.history.blobs, told.history.fixed.config)
    gone = missing_payloads(told.documents, told.history.blobs)
    lines = explain_round(told.one, told.documents, document)
    return told.heading() | {"sentences": [*lines, *explain_missing_payloads(told.documents, gone)]}


def _whole(history: HistorySource, one: Round) -> Told:
    """Return a round of a list with all that came in."""
    read = history.round(one.round)
    return Told.of(history, one if read is None else read)
