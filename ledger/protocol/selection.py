"""Ranking and the selection strategies (section "Selection Strategy")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.protocol.encoding import ranking_word, word_client
from ledger.protocol.types import ClientId, Strategy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MILLION = 1_000_000


def rank(distances: Iterable[tuple[ClientId, float]]) -> tuple[int, ...]:
    """Return the trainers best first, as strictly increasing ranking words.

    Args:
        distances: each trainer with its distance to the committee.

    Returns:
        One word per trainer; ties are in the order of the client index.
    """
    return tuple(sorted(ranking_word(distance, client) for client, distance in distances))


def rounded_share(parts_per_million: int, whole: int) -> int:
    """Return floor(rate · whole + 1/2), exactly."""
    return (2 * parts_per_million * whole + MILLION) // (2 * MILLION)


def accepted_size(aggregation_ppm: int, trainers: int) -> int:
    """Return m for the number of trainers that remain in the ranking, at least 1."""
    return max(1, rounded_share(aggregation_ppm, trainers))


def select(
    ranking: Sequence[int], strategy: Strategy, accepted: int, threshold_bits: int
) -> tuple[ClientId, ...]:
    """Return S_a in ranking order.

    Args:
        ranking: ranking words, best first.
        strategy: I takes the m nearest, II the m farthest, III all within the threshold.
        accepted: m.
        threshold_bits: float64 bits of strategy III's threshold; unused otherwise.

    Returns:
        The aggregation clients; for III the m nearest if none is within the threshold.
    """
    clients = tuple(word_client(word) for word in ranking)
    if strategy is Strategy.FARTHEST:
        return clients[len(clients) - accepted :]
    if strategy is Strategy.WITHIN_SPREAD:
        within = sum(word >> 32 <= threshold_bits for word in ranking)
        return clients[: within or accepted]
    return clients[:accepted]
