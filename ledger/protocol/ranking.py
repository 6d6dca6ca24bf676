"""The ranking of the trainers, best first (section "Scoring System")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.protocol.encoding import ranking_word

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger.protocol.types import ClientId


def rank(distances: Iterable[tuple[ClientId, float]]) -> tuple[int, ...]:
    """Return the trainers best first, as strictly increasing words; ties by client index."""
    return tuple(sorted(ranking_word(distance, client) for client, distance in distances))


def score(distance: float) -> float:
    """Return the paper's P_k for a trainer's mean distance; infinite at distance 0."""
    return 1.0 / distance if distance else float("inf")
