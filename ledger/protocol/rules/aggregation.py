"""The aggregation of the accepted updates (Eqs. aggregation and globalUpdate), bit for bit."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.types import ClientId

_PART = 1 << 15
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
    for start in range(0, len(model), _PART):
        part = slice(start, start + _PART)
        weighted = np.zeros(len(model[part]))
        for client, share in shares.items():
            weighted = weighted + share * updates[client][part].astype(np.float64)
        with np.errstate(over="ignore"):  # an overflow becomes inf, which no member votes for
            result[part] = model[part].astype(np.float64) - server_rate * weighted
    return result
