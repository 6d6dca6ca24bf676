"""A standing as plain data, for an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.history.facts.words import ended_facts, hexed, hexed_or_none, moment, phase_name

if TYPE_CHECKING:
    from ledger.actors.status.open_round_status import ClientRoundStatus, OpenRoundStatus
    from ledger.history.facts.words import Facts
    from ledger.history.round import Round
    from ledger.history.source import HistorySource


def standing_facts(history: HistorySource, standing: OpenRoundStatus) -> Facts:
    """Return where an open round stands.

    Args:
        history: of the deployment, for the times of blocks.
        standing: of its open round.
    """
    aggregation, election = standing.certified
    closing = standing.closing_block
    return {
        "round": standing.round,
        "stage": standing.stage.value,
        "opened": _block(history, standing.opened_block),
        "window_block": standing.window_block,
        "closing": None if closing is None else _block(history, closing),
        "deadline_block": standing.deadline_block,
        "view": _view(standing),
        "certified": {"aggregation": aggregation, "election": election},
        "late": [one.client for one in standing.late],
        "clients": [_client(one) for one in standing.clients],
    }


def round_facts(history: HistorySource, one: Round) -> Facts:
    """Return a round's line: its views, and how long it took.

    Args:
        history: of the deployment.
        one: the round, by its opening and its end.
    """
    opened, ended = _block(history, one.opening.opened_block), ended_facts(history, one)
    return {
        "round": one.round,
        "status": one.status.value,
        "views": list(one.decided.views) if one.decided else None,
        "opened": opened,
        "ended": ended,
        "seconds": None if ended is None else max(0, ended["time"] - opened["time"]),
    }


def _block(history: HistorySource, number: int) -> Facts:
    return {"number": number, **moment(history.time_of(number))}


def _view(standing: OpenRoundStatus) -> Facts | None:
    if standing.phase is None or standing.span is None:
        return None
    return {
        "phase": phase_name(standing.phase),
        "number": standing.span.view,
        "primary": standing.primary,
        "begins": round(standing.span.begin, 3),
        "ends": round(standing.span.end, 3),
    }


def _client(one: ClientRoundStatus) -> Facts:
    return {
        "client": one.client,
        "role": one.role.value,
        "place": one.place,
        "committed_block": one.committed_block,
        "counts": one.counts,
        "payload": hexed_or_none(one.announced),
        "scored": [{"clients": hexed(each.clients), "size": each.size} for each in one.scored],
        "votes": [
            {
                "kind": vote.kind.name.lower(),
                "phase": phase_name(vote.phase),
                "view": vote.view,
                "different": vote.different,
            }
            for vote in one.votes
        ],
        "equivocated": one.has_equivocated,
        "banned": one.is_banned,
        "passed": [{"phase": phase_name(each.phase), "view": each.view} for each in one.passed],
        "awaited": [{"act": each.act.value, "due": each.due} for each in one.awaited],
        "late_since": one.late_since,
    }
