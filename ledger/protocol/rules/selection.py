"""Selection of trainers from a ranking, and the aggregation of their updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.encoding import float_bits, word_client
from ledger.protocol.rules.direction import RIGHT_ANGLE
from ledger.protocol.types import AcceptanceForm, ClientId

RIGHT_ANGLE_BITS = float_bits(RIGHT_ANGLE)


def nearest(ranking: Sequence[int], accepted: int) -> tuple[ClientId, ...]:
    """Return the first m of the ranking (strategy I)."""
    return tuple(word_client(word) for word in ranking[:accepted])


def farthest(ranking: Sequence[int], accepted: int) -> tuple[ClientId, ...]:
    """Return the last m of the ranking, in ranking order (strategy II)."""
    return tuple(word_client(word) for word in ranking[len(ranking) - accepted :])


def below_two(ranking: Sequence[int], accepted: int) -> tuple[ClientId, ...]:
    """Return all trainers at a distance below 2, the m nearest if none is (strategy III, ours)."""
    below = sum(word >> 32 < RIGHT_ANGLE_BITS for word in ranking)
    return tuple(word_client(word) for word in ranking[: below or accepted])


SELECTIONS: dict[AcceptanceForm, Callable[[Sequence[int], int], tuple[ClientId, ...]]] = {
    AcceptanceForm.FIRST: nearest,
    AcceptanceForm.LAST: farthest,
    AcceptanceForm.BELOW_TWO: below_two,
}
"""From the ranking words (best first) and m to S_a in ranking order."""


_SUM_PART = 1 << 15
"""Numbers of the model that are summed at a time."""


def aggregate(
    model: NDArray[np.float32],
    updates: Mapping[ClientId, NDArray[np.float32]],
    samples: Mapping[ClientId, int],
    server_rate: float,
    factors: Mapping[ClientId, float] | None = None,
) -> NDArray[np.float32]:
    """Return w_{t+1} = w_t − η Σ_k p_k s_k Δ_k over S_a, p_k = n_k / Σ n_k.

    Every product and every sum is one IEEE operation in float64, clients ascend, and there is one
    rounding to float32 at the end: the same bytes on any processor and with any library.

    Args:
        model: w_t, shape (d,).
        updates: Δ_k of the aggregation clients, each of shape (d,).
        samples: n_k of at least these clients.
        factors: s_k of these clients, for updates that are clipped; None for 1 each.

    Returns:
        The next model, shape (d,).
    """
    if not updates:
        raise ValueError("there is no update to aggregate")
    for client in sorted(updates):
        if updates[client].shape != model.shape:
            raise ValueError(f"the update of client {client} has shape {updates[client].shape}")
    total = sum(samples[client] for client in updates)
    shares = {client: samples[client] / total for client in sorted(updates)}
    if factors is not None:
        shares = {client: share * factors[client] for client, share in shares.items()}
    result = np.empty(model.shape, dtype=np.float32)
    # Part by part, which changes no bit: float64 copies of whole updates would not stay in cache.
    for start in range(0, len(model), _SUM_PART):
        part = slice(start, start + _SUM_PART)
        weighted = np.zeros(len(model[part]))
        for client, share in shares.items():
            weighted = weighted + share * updates[client][part].astype(np.float64)
        with np.errstate(over="ignore"):  # an overflow becomes inf, which no member votes for
            result[part] = model[part].astype(np.float64) - server_rate * weighted
    return result
