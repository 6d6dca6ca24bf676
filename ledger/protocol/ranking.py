"""The ranking of the trainers, best first, and the election from it.

The paper: "Scoring System" and "Election Strategy".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.encoding import keccak256, ranking_word, u32, word_client
from ledger.protocol.types import ClientId, Digest


def mean_distances(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each trainer's mean distance (Eq. computeScore), with the same bits everywhere.

    The paper ranks by P_k = C / Σ_c D_k^c. Ranking by P, best first, is ranking by the mean
    distance, nearest first; distances are used here because they exist for D = 0 too.

    Args:
        distances: shape (members, trainers), members ascending; summed row by row.
    """
    if not len(distances):
        raise ValueError("no member's distances are given")
    total = np.zeros(distances.shape[1:])
    for row in distances:
        total = total + row
    return total / len(distances)


def rank(distances: Iterable[tuple[ClientId, float]]) -> tuple[int, ...]:
    """Return the trainers best first, as strictly increasing words; ties by client index."""
    return tuple(sorted(ranking_word(distance, client) for client, distance in distances))


def score(distance: float) -> float:
    """Return the paper's P_k for a trainer's mean distance; infinite at distance 0."""
    return 1.0 / distance if distance else float("inf")


def candidates(
    ranking: Sequence[int], accepted: Sequence[ClientId], members: int, *, by_lot: bool
) -> tuple[ClientId, ...]:
    """Return those of whom the next committee is, in ranking order, which the members vote on.

    In the middle of the ranking there are C, from floor((n − C) / 2) on, and all are elected:
    neither the nearest (the first committee would steer the model for ever) nor the farthest (where
    attackers gather). Of a lot they are S_a, and its neighbours in the ranking if it has fewer than
    C clients.

    Args:
        accepted: S_a; with a lot, it begins the ranking.
        by_lot: whether the committee is drawn among S_a.
    """
    if len(ranking) < members:
        raise ValueError(f"{len(ranking)} ranked clients cannot fill {members} places")
    ranked = tuple(map(word_client, ranking))
    if by_lot:
        return ranked[: max(len(accepted), members)]
    first = (len(ranked) - members) // 2
    return ranked[first : first + members]


def elect(candidates: Sequence[ClientId], members: int, next_seed: Digest) -> tuple[ClientId, ...]:
    """Return S_c of the next round in ranking order: C of the candidates.

    Each set of C has the same chance: a candidate is drawn with that of the places still empty
    among the candidates still to come (selection sampling, Knuth's Algorithm S). The seed comes
    after the votes, so that whoever votes cannot choose who is drawn.

    Args:
        next_seed: seed_{t+1}.
    """
    elected: list[ClientId] = []
    for place, client in enumerate(candidates):
        left, wanted = len(candidates) - place, members - len(elected)
        if wanted == left or _drawn(next_seed, place) % left < wanted:
            elected.append(client)
    return tuple(elected)


def _drawn(seed: Digest, place: int) -> int:
    return int.from_bytes(keccak256(seed + b"elected" + u32(place)))
