"""Distances between updates on CPU or GPU: the fast twin of the protocol's scoring.

Eq. computeScore needs ‖Δ_k − Δ_c‖² for every trainer k and member c. These are direct
differences summed in float64: the Gram form a·a + b·b − 2a·b loses every digit when updates
are much alike, and centring it first loses them to one attacker with a huge update.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from clients.devices import device_named, reproducible

# Parameters at a time: 64 updates' worth of float64 fit in a core's cache. Fixed, and not made
# to fit the number of updates, because it orders the sum.
_BLOCK = 2048

Distances = NDArray[np.float64]


def squared_distances(
    updates: NDArray[np.float32], references: NDArray[np.float32], device: str = "cpu"
) -> Distances:
    """Return the squared Euclidean distance of every update to every reference.

    A pair's distance has the same bytes whichever other updates are in the call.

    Args:
        updates: Δ_k of the trainers, shape (n, d), finite.
        references: Δ_c of the members, shape (C, d), finite.
        device: "cpu", "cuda" or "auto".

    Returns:
        ‖Δ_k − Δ_c‖² at [c, k], shape (C, n), at least 0.

    Raises:
        ValueError: not two matrices of equal width, or an update that is not finite.
    """
    if updates.ndim != 2 or references.ndim != 2 or updates.shape[1] != references.shape[1]:
        raise ValueError(f"updates {updates.shape} and references {references.shape} differ in d")
    if not (np.isfinite(updates).all() and np.isfinite(references).all()):
        raise ValueError("an update is not finite: leave it out before scoring")
    where = device_named(device)
    count, dimension = updates.shape
    with reproducible(where), torch.no_grad():
        total = torch.zeros(len(references), count, dtype=torch.float64, device=where)
        for start in range(0, dimension, _BLOCK):
            stop = start + _BLOCK
            deltas = torch.tensor(updates[:, start:stop], device=where).double()
            members = torch.tensor(references[:, start:stop], device=where).double()
            total += torch.stack([(deltas - one).square_().sum(1) for one in members])
    return total.numpy(force=True)
