"""A run over its rounds, for charts: the chain's records, and the claims of the run's own files.

Nothing proves accuracy: only the process that has played the run reports it. It is shown as a
claim, with the accuracy of always answering the commonest class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from ledger.claims import ClaimedRound, claims_of
from ledger.io.home import RunPaths
from ledger.protocol.errors import EncodingError

if TYPE_CHECKING:
    from ledger.history.history import FoldedHistory
    from ledger.history.responses.series import Claimed, ClaimsState, Series
    from ledger.history.round import HistoryRound

MAX_POINTS = 2_000
"""Rounds in one response; a longer run is thinned evenly, and keeps its last round."""


def series_response(rounds: Iterable[HistoryRound], folder: RunPaths | None) -> Series:
    """Return a run's rounds as columns of equal length.

    Args:
        rounds: ascending, by their openings and ends.
        folder: of the run, for its claims; None where it is not available.
    """
    points = list(rounds)
    state, rows = _claims(points, folder)
    claimed = _columns([rows.get(point.round) for point in points]) if state == "read" else None
    return {
        "round": [point.round for point in points],
        "status": [point.status for point in points],
        "ranked": [len(point.decided.ranking) if point.decided else None for point in points],
        "accepted": [len(point.decided.accepted) if point.decided else None for point in points],
        "views": [point.decided.views if point.decided else None for point in points],
        "committee": [list(point.committee) for point in points],
        "claims": state,
        "claimed": claimed,
    }


def chart_rounds(history: FoldedHistory) -> list[HistoryRound]:
    """Return the rounds that a chart shows, ascending, by their openings and ends."""
    newest = history.newest()
    numbers = chart_points(newest)
    if len(numbers) == newest:
        return history.rounds(1, newest) if newest else []
    return history.some(numbers)


def chart_points(newest: int) -> list[int]:
    """Return the numbers of the rounds that a chart shows: all, or evenly thinned ones."""
    step = -(-newest // MAX_POINTS) if newest else 1
    numbers = list(range(1, newest + 1, step))
    return numbers if not numbers or numbers[-1] == newest else [*numbers, newest]


def _claims(
    points: Sequence[HistoryRound], folder: RunPaths | None
) -> tuple[ClaimsState, dict[int, ClaimedRound]]:
    """Return the claims of a run's files about some rounds, and whether they could be read."""
    if folder is None:
        return "absent", {}
    try:
        return "read", claims_of(folder, {point.round for point in points})
    except (EncodingError, OSError):
        return "unreadable", {}


def _columns(rows: Sequence[ClaimedRound | None]) -> Claimed:
    names = ("accuracy", "floor", "malicious_accepted")
    return cast("Claimed", {name: [getattr(row, name, None) for row in rows] for name in names})
