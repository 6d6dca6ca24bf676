"""A run over its rounds, for curves: what the chain records, and what the run's own files claim.

Accuracy is not proven by anything: only the process that has played the run says it. It stands
beside the rounds as a claim, with the accuracy of always answering the commonest class.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from ledger.claims import claims_of
from ledger.protocol.errors import EncodingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ledger.claims import ClaimedRound
    from ledger.history.facts.words import Facts
    from ledger.history.round import Round
    from ledger.history.source import HistorySource
    from ledger.io.home import RunPaths

MOST_POINTS = 2_000
"""Rounds in one answer; of more every so many-th is told, and the last."""


class Claims(StrEnum):
    """Whether a run's own files were read."""

    READ = "read"
    ABSENT = "absent"
    """They are not in this home."""
    UNREADABLE = "unreadable"
    """They are damaged, too large, or no files."""


def series_facts(rounds: Iterable[Round], folder: RunPaths | None) -> Facts:
    """Return a run's rounds as columns of equal length.

    Args:
        rounds: ascending, by their openings and ends.
        folder: of the run, for what it claims; None where it is not at hand.
    """
    points = list(rounds)
    claims, rows = _claims(points, folder)
    return {
        "round": [one.round for one in points],
        "status": [one.status.value for one in points],
        "ranked": [len(one.decided.ranking) if one.decided else None for one in points],
        "accepted": [len(one.decided.accepted) if one.decided else None for one in points],
        "views": [list(one.decided.views) if one.decided else None for one in points],
        "committee": [list(one.committee) for one in points],
        "claims": claims.value,
        "claimed": _columns([rows.get(one.round) for one in points])
        if claims is Claims.READ
        else None,
    }


def curve_of(history: HistorySource) -> list[Round]:
    """Return the rounds that a curve shows, ascending, by their openings and ends.

    Args:
        history: of the deployment.
    """
    told = told_rounds(history.newest())
    is_whole = len(told) == history.newest()
    if is_whole:
        return history.rounds(1, len(told)) if told else []
    return history.some(told)


def _claims(
    points: Sequence[Round], folder: RunPaths | None
) -> tuple[Claims, dict[int, ClaimedRound]]:
    """Return what a run's files claim of some rounds, and whether they could be read."""
    if folder is None:
        return Claims.ABSENT, {}
    try:
        return Claims.READ, claims_of(folder, {one.round for one in points})
    except (EncodingError, OSError):
        return Claims.UNREADABLE, {}


def _columns(rows: Sequence[ClaimedRound | None]) -> Facts:
    return {
        "accuracy": [None if row is None else row.accuracy for row in rows],
        "floor": [None if row is None else row.floor for row in rows],
        "malicious_accepted": [None if row is None else row.malicious_accepted for row in rows],
    }


def told_rounds(newest: int) -> list[int]:
    """Return which rounds a curve shows: all, or every so many-th and the last.

    Args:
        newest: the number of the newest round.
    """
    step = -(-newest // MOST_POINTS) if newest else 1
    told = list(range(1, newest + 1, step))
    return told if not told or told[-1] == newest else [*told, newest]
