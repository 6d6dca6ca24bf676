"""A run over its rounds, for curves: what the chain records, and what the run's own files claim.

Accuracy is not proven by anything: only the process that has played the run says it. It stands
beside the rounds as a claim, with the accuracy of always answering the commonest class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger.claims import ClaimedRound
    from ledger.history.facts.words import Facts
    from ledger.history.round import Round

MOST_POINTS = 2_000
"""Rounds in one answer; of more every so many-th is told, and the last."""


def series_facts(rounds: Iterable[Round], claimed: Iterable[ClaimedRound] | None) -> Facts:
    """Return a run's rounds as columns of equal length.

    Args:
        rounds: ascending, by their openings and ends.
        claimed: the rows of the run's metrics; None where they are not at hand.
    """
    points = list(rounds)
    rows = {} if claimed is None else {row.round: row for row in claimed}
    known = [rows.get(one.round) for one in points]
    return {
        "round": [one.round for one in points],
        "status": [one.status.value for one in points],
        "ranked": [len(one.decided.ranking) if one.decided else None for one in points],
        "accepted": [len(one.decided.accepted) if one.decided else None for one in points],
        "views": [list(one.decided.views) if one.decided else None for one in points],
        "committee": [list(one.committee) for one in points],
        "claimed": None
        if claimed is None
        else {
            "accuracy": [None if row is None else row.accuracy for row in known],
            "floor": [None if row is None else row.floor for row in known],
            "malicious_accepted": [
                None if row is None else row.malicious_accepted for row in known
            ],
        },
    }


def told_rounds(newest: int) -> list[int]:
    """Return which rounds a curve shows: all, or every so many-th and the last.

    Args:
        newest: the number of the newest round.
    """
    step = -(-newest // MOST_POINTS) if newest else 1
    told = list(range(1, newest + 1, step))
    return told if not told or told[-1] == newest else [*told, newest]
