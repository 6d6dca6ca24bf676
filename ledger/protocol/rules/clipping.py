"""Clip rules: how much of a long accepted update enters the model.

The model is voted on bit for bit, so the norms are exact: the square of a float32 number is exact
in float64, and the sum of the squares is that of real numbers, rounded once. No order of summation
is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import fsum, sqrt
from typing import TYPE_CHECKING

import numpy as np

from ledger.protocol.rules.direction import norm_of
from ledger.protocol.rules.scoring import median
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PART = 1 << 18
"""Numbers of an update that are squared at a time."""

_SHORT = 1 << 10
"""Numbers of an update up to which `math.fsum`, which gives the same bits, is the faster way."""

_ROUGH = 1e-9
"""Part of a norm by which one that is summed in float64 differs from it at most."""

_SCALE = 300
"""The smallest square but 0 is 2^-298; of the exponent field e it is a multiple of 2^(2e − 300)."""

Vectors = Mapping[ClientId, "NDArray[np.float32]"]
ClipFactors = Callable[[Vectors, Vectors], dict[ClientId, float]]
"""From the accepted updates and all of the round's set, each of shape (d,), to the factor of each
accepted one, in [0, 1]."""


@dataclass(frozen=True, slots=True)
class ClipRule:
    """A way to shorten long updates before they are aggregated.

    Attributes:
        name: as in TOML and in the run document.
        factors: of the accepted updates; None for no clipping.
        sentence: for a reader.
        needs_all: whether updates that are not accepted, members' among them, determine factors.
    """

    name: str
    factors: ClipFactors | None
    sentence: str
    needs_all: bool = False


def median_factors(accepted: Vectors, updates: Vectors) -> dict[ClientId, float]:  # noqa: ARG001 - one signature for all
    """Return min(1, t / ‖Δ_k‖) of each accepted update, t the median of their norms."""
    norms = {client: exact_norm(update) for client, update in accepted.items()}
    return _shortened(norms, float(median(np.array(list(norms.values())))))


def quantile_factors(accepted: Vectors, updates: Vectors) -> dict[ClientId, float]:
    """Return min(1, t / ‖Δ_k‖) of each accepted update, t the two-fifths quantile of all norms.

    Whoever sends half of a round's updates decides which are accepted, but not t: up to three
    fifths that are too long, or two fifths that are too short, leave it between honest lengths.
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
    return _shortened(norms, length)


def quantile_place(count: int) -> int:
    """Return the place of the clip length among so many ascending norms, from 0."""
    return 2 * (count - 1) // 5


def _shortened(norms: Mapping[ClientId, float], length: float) -> dict[ClientId, float]:
    return {client: 1.0 if norm <= length else length / norm for client, norm in norms.items()}


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


NONE = ClipRule(name="none", factors=None, sentence="updates enter as they are")
MEDIAN = ClipRule(
    name="median",
    factors=median_factors,
    sentence="accepted updates that are longer than their median are shortened to it",
)
QUANTILE = ClipRule(
    name="quantile",
    factors=quantile_factors,
    sentence=(
        "accepted updates are shortened to the length that two fifths of all of the round's "
        "updates do not exceed"
    ),
    needs_all=True,
)
