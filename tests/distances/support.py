"""Rounds of updates for tests of distances, and every code that computes them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ledger.distances.fast import distances_with, fast_distances
from ledger.distances.machine_code import Processor, compiled, this_processor
from ledger.protocol.rules.distance import DistanceContext, ServerDirection, plain_distances
from ledger.protocol.rules.reference import DirectionWeight
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.protocol.rules.distance import DistanceRule, Distances

STEEP = DirectionWeight(window=20, slope=150.0, cap=3.0)


def round_of(vectors: Sequence[np.ndarray] | np.ndarray) -> dict[ClientId, np.ndarray]:
    """Updates of clients 0, 10, 20, ..."""
    return {ClientId(10 * place): vector for place, vector in enumerate(vectors)}


def draws(seed: int, count: int, dimension: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, dimension)).astype(np.float32)


def context_of(dimension: int) -> DistanceContext:
    """Two tensors, cut somewhere in the middle."""
    cut = dimension // 3
    return DistanceContext((("weights", (cut, 1)), ("biases", (dimension - cut,))))


def pulled(
    vector: np.ndarray, members: Sequence[int], travel: DirectionWeight = STEEP
) -> DistanceContext:
    """References that follow a travel as far as these members of a `round_of` agree with it."""
    jury = tuple(ClientId(10 * member) for member in members)
    return DistanceContext(context_of(len(vector)).layout, ServerDirection(vector, jury, travel))


def other_tile() -> Distances:
    """Distances by the code for processors with fewer registers."""
    processor = this_processor()
    return distances_with(compiled(replace(processor, tile=6 - processor.tile)))


def older_processor() -> Distances:
    """Distances by the code that this machine would run if it were ten years older."""
    if "+fma" not in this_processor().features:
        pytest.skip("needs an x86 processor")
    return distances_with(compiled(Processor("haswell", "+avx2,+fma", 2)))


CODES = {
    "one thread": fast_distances,
    "two threads": lambda: fast_distances(2),
    "other tile": other_tile,
    "older processor": older_processor,
}


def require_equal(
    fast: Distances,
    rule: DistanceRule,
    vectors: np.ndarray,
    members: Sequence[int],
    context: DistanceContext | None = None,
) -> None:
    """Hold fast distances to a ten-thousandth of what the rule tolerates, pulled to a hundredth."""
    updates, context = round_of(vectors), context or context_of(vectors.shape[1])
    asked = [ClientId(10 * member) for member in members]
    found = fast(rule, context, updates, asked)
    expected = plain_distances(rule, context, updates, asked)
    assert found.dtype == np.float64
    assert found.shape == expected.shape
    measure = rule.among(updates, context)
    margins = [
        [
            measure.tolerance(update, distance)
            for update, distance in zip(updates.values(), row, strict=True)
        ]
        for row in expected
    ]
    parts = 10_000 if context.server_direction is None else 100
    assert (np.abs(found - expected) <= np.array(margins) / parts).all()
