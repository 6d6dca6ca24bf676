"""Clipping: how much of a long accepted update enters strategy III's model.

The model is voted on bit for bit, so the norms are exact: the square of a float32 number is exact
in float64, and the sum of the squares is that of real numbers, rounded once. No order of summation
is in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum, sqrt

import numpy as np
from numpy.typing import NDArray

from ledger.protocol.rules.direction import norm_of
from ledger.protocol.types import ClientId

_PART = 1 << 18
"""Numbers of an update that are squared at a time."""

_SHORT = 1 << 10
"""Numbers of an update up to which `math.fsum`, which gives the same bits, is the faster way."""

_ROUGH = 1e-9
"""Part of a norm by which one that is summed in float64 differs from it at most."""

_SCALE = 300
"""The smallest square but 0 is 2^-298; of the exponent field e it is a multiple of 2^(2e − 300)."""

Vectors = Mapping[ClientId, "NDArray[np.float32]"]


def clip_factors(accepted: Vectors, updates: Vectors) -> dict[ClientId, float]:
    """Return min(1, t / ‖Δ_k‖) of each accepted update, t the two-fifths quantile of all norms.

    Whoever sends half of a round's updates decides which are accepted, but not t: up to three
    fifths that are too long, or two fifths that are too short, leave it between honest lengths.

    Args:
        accepted: updates of S_a, each of shape (d,).
        updates: all of the round's set, those of S_a and of members among them.
    """
    # An exact norm takes ten times as long as a rough one, which tells who needs none.
    rough = {client: norm_of(update) for client, update in updates.items()}
    place = quantile_place(len(rough))
    middle = sorted(rough.values())[place]
    shorter = {client for client, norm in rough.items() if norm < middle * (1 - _ROUGH)}
    near = {client for client, norm in rough.items() if norm <= middle * (1 + _ROUGH)} - shorter
    length = sorted(exact_norm(updates[client]) for client in near)[place - len(shorter)]
    norms = {
        client: rough[client] if client in shorter else exact_norm(update)
        for client, update in accepted.items()
    }
    return {client: 1.0 if norm <= length else length / norm for client, norm in norms.items()}


def quantile_place(count: int) -> int:
    """Return the place of the clip length among so many ascending norms, from 0."""
    return 2 * (count - 1) // 5


def exact_norm(update: NDArray[np.float32]) -> float:
    """Return ‖Δ‖, the root of the exact sum of squares, each rounded once to float64.

    Args:
        update: finite numbers, shape (d,), d at most 2^28.
    """
    if len(update) <= _SHORT:
        return sqrt(fsum(np.square(update.astype(np.float64)).tolist()))
    halves = np.zeros((2, 256))
    for start in range(0, len(update), _PART):
        bits = np.ascontiguousarray(update[start : start + _PART], dtype=np.float32).view(np.uint32)
        fields = (bits >> 23) & 0xFF
        # A subnormal number has no leading 1, and the exponent of the smallest normal ones.
        whole = (bits & 0x7FFFFF) | ((fields > 0).astype(np.uint32) << 23)
        squares = whole.astype(np.uint64) ** 2
        # Of 48 bits each: sums of halves stay below 2^53, and so are exact in any order.
        for half, part in enumerate((squares & 0xFFFFFF, squares >> 24)):
            halves[half] += np.bincount(np.maximum(fields, 1), weights=part, minlength=256)
    fields_used = np.flatnonzero(halves.any(axis=0)).tolist()  # a small update has few of them
    total = sum(
        (int(halves[0, field]) + (int(halves[1, field]) << 24)) << (2 * field)
        for field in fields_used
    )
    return sqrt(total / (1 << _SCALE))
