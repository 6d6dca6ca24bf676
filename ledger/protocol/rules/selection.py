"""The ranking of the trainers, best first; the sets, the election and the aggregate that follow.

The paper: "Scoring System" and "Election Strategy".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.encoding import float_bits, keccak256, ranking_word, u32, word_client
from ledger.protocol.rules.direction import RIGHT_ANGLE
from ledger.protocol.rules.distance import ServerStep, Vector, plain_server_step
from ledger.protocol.types import AcceptanceForm, ClientId, Digest

RIGHT_ANGLE_BITS = float_bits(RIGHT_ANGLE)


def nearest(ranking: Sequence[int], accepted: int) -> tuple[ClientId, ...]:
    """Return the first m of the ranking (strategy I)."""
    return tuple(map(word_client, ranking[:accepted]))


def farthest(ranking: Sequence[int], accepted: int) -> tuple[ClientId, ...]:
    """Return the last m of the ranking, in ranking order (strategy II)."""
    return tuple(map(word_client, ranking[len(ranking) - accepted :]))


def below_two(ranking: Sequence[int], accepted: int) -> tuple[ClientId, ...]:
    """Return all trainers at a distance below 2, the m nearest if none is (strategy III, ours)."""
    below = sum(word >> 32 < RIGHT_ANGLE_BITS for word in ranking)
    return tuple(map(word_client, ranking[: below or accepted]))


SELECTIONS: dict[AcceptanceForm, Callable[[Sequence[int], int], tuple[ClientId, ...]]] = {
    AcceptanceForm.FIRST: nearest,
    AcceptanceForm.LAST: farthest,
    AcceptanceForm.BELOW_TWO: below_two,
}
"""From the ranking words (best first) and m to S_a in ranking order."""


def aggregate(
    model: Vector,
    updates: Mapping[ClientId, Vector],
    samples: Mapping[ClientId, int],
    server_rate: float,
    factors: Mapping[ClientId, float] | None = None,
    step: ServerStep = plain_server_step,
) -> Vector:
    """Return w_{t+1} = w_t − η Σ_k p_k s_k Δ_k over S_a, p_k = n_k / Σ n_k, clients ascending."""
    if not updates:
        raise ValueError("there is no update to aggregate")
    clients = sorted(updates)
    for client in clients:
        if updates[client].shape != model.shape:
            raise ValueError(f"the update of client {client} has shape {updates[client].shape}")
    total = sum(samples[client] for client in clients)
    scales = dict.fromkeys(clients, 1.0) if factors is None else factors
    shares = [samples[client] / total * scales[client] for client in clients]
    return step(model, [updates[client] for client in clients], shares, server_rate)


def mean_distances(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each trainer's mean distance (Eq. computeScore), with the same bits everywhere.

    The paper ranks by P_k = C / Σ_c D_k^c. Ranking by P, best first, is ranking by the mean
    distance, nearest first; distances are used here because they exist for D = 0 too. They have the
    shape (members, trainers), members ascending, and are summed row by row.
    """
    if not len(distances):
        raise ValueError("no member's distances are given")
    total = np.zeros(distances.shape[1:])
    for row in distances:
        total = total + row
    return total / len(distances)


def rank(distances: Iterable[tuple[ClientId, float]]) -> tuple[int, ...]:
    """Return the trainers best first, as strictly increasing words; ties by client index."""
    return tuple(sorted([ranking_word(distance, client) for client, distance in distances]))


def candidates(
    ranking: Sequence[int], accepted: Sequence[ClientId], members: int, *, by_lot: bool
) -> tuple[ClientId, ...]:
    """Return the next committee's candidates in ranking order; members vote on this list.

    They are the C in the middle of the ranking, from floor((n − C) / 2) on, and all are elected.
    The nearest would let the first committee steer the model permanently, and attackers gather
    among the farthest. With an election by lot they are S_a, which begins the ranking, or its C
    first.
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

    Each set of C has the same chance (selection sampling, Knuth's Algorithm S). The seed seed_{t+1}
    comes after the votes, so no voter can choose the committee.
    """
    elected: list[ClientId] = []
    for place, client in enumerate(candidates):
        left, wanted = len(candidates) - place, members - len(elected)
        drawn = int.from_bytes(keccak256(next_seed + b"elected" + u32(place)))
        if wanted == left or drawn % left < wanted:
            elected.append(client)
    return tuple(elected)
