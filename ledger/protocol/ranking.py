"""The ranking of the trainers, best first, and the election from its middle.

The paper: "Scoring System" and "Election Strategy".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.protocol.encoding import ranking_word, word_client

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ledger.protocol.types import ClientId


def rank(distances: Iterable[tuple[ClientId, float]]) -> tuple[int, ...]:
    """Return the trainers best first, as strictly increasing words; ties by client index."""
    return tuple(sorted(ranking_word(distance, client) for client, distance in distances))


def score(distance: float) -> float:
    """Return the paper's P_k for a trainer's mean distance; infinite at distance 0."""
    return 1.0 / distance if distance else float("inf")


def elect(ranking: Sequence[int], members: int) -> tuple[ClientId, ...]:
    """Return S_c of the next round in ranking order: C clients from floor((n − C) / 2) on.

    Neither the nearest (the first committee would steer the model for ever) nor the farthest
    (where attackers gather) are elected.

    Raises:
        ValueError: fewer clients are ranked than a committee needs.
    """
    if len(ranking) < members:
        raise ValueError(f"{len(ranking)} ranked clients cannot fill {members} places")
    first = (len(ranking) - members) // 2
    return tuple(word_client(word) for word in ranking[first : first + members])
