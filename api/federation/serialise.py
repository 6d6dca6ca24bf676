"""Responses about the open round of a live federation, and about its last rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.actors.status import ClientRoundStatus, OpenRoundStatus
from ledger.history.serialise_rounds import end_block, phase_name, time_of, to_hex_or_none
from ledger.protocol.encoding import to_hex
from ledger.protocol.types import VoteKind

if TYPE_CHECKING:
    from api.schemas.federation import ActiveClient, BlockInTime, CurrentView, OpenRound, PacedRound
    from ledger.history.history import FoldedHistory
    from ledger.history.round import HistoryRound


def open_round(history: FoldedHistory, status: OpenRoundStatus) -> OpenRound:
    """Return the status of the open round."""
    aggregation, election = status.certified
    closing = status.closing_block
    return {
        "round": status.round,
        "stage": status.stage.value,
        "opened": _block(history, status.opened_block),
        "window_block": status.window_block,
        "closing": None if closing is None else _block(history, closing),
        "deadline_block": status.deadline_block,
        "view": _view(status),
        "certified": {"aggregation": aggregation, "election": election},
        "late": [client.client for client in status.late],
        "clients": [_client(client) for client in status.clients],
    }


def paced_round(history: FoldedHistory, round_: HistoryRound) -> PacedRound:
    """Return a round's line: its views, and how long it took."""
    opened, ended = _block(history, round_.opening.opened_block), end_block(history, round_)
    return {
        "round": round_.round,
        "status": round_.status,
        "views": round_.decided.views if round_.decided else None,
        "opened": opened,
        "ended": ended,
        "seconds": None if ended is None else max(0, ended["time"] - opened["time"]),
    }


def _block(history: FoldedHistory, number: int) -> BlockInTime:
    return {"number": number, **time_of(history.time_of(number))}


def _view(status: OpenRoundStatus) -> CurrentView | None:
    if status.phase is None or status.span is None or status.primary is None:
        return None
    return {
        "phase": phase_name(status.phase),
        "number": status.span.view,
        "primary": status.primary,
        "begins": round(status.span.begin, 3),
        "ends": round(status.span.end, 3),
    }


def _client(client: ClientRoundStatus) -> ActiveClient:
    return {
        "client": client.client,
        "role": client.role.value,
        "place": client.place,
        "committed_block": client.committed_block,
        "counts": client.counts,
        "payload": to_hex_or_none(client.announced),
        "scored": [{"clients": to_hex(each.clients), "size": each.size} for each in client.scored],
        "votes": [
            {
                "kind": "request" if vote.kind is VoteKind.REQUEST else "reply",
                "phase": phase_name(vote.phase),
                "view": vote.view,
                "different": vote.different,
            }
            for vote in client.votes
        ],
        "equivocated": client.has_equivocated,
        "banned": client.is_banned,
        "passed": [{"phase": phase_name(each.phase), "view": each.view} for each in client.passed],
        "awaited": [{"act": each.act.value, "due": each.due} for each in client.awaited],
        "late_since": client.late_since,
    }
