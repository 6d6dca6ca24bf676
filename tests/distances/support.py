"""Rounds of updates for tests of distances, and every code that computes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from ledger.distances import (
    BlockedSquares,
    Processor,
    StreamedSquares,
    compiled,
    distances_by,
    fast_distances,
    this_processor,
)
from ledger.protocol.rules.direction import direction_distances
from ledger.protocol.rules.distance import (
    DIRECTION,
    RELATIVE_TOLERANCE,
    SQUARED,
    DistanceRule,
    Distances,
    Travel,
    plain_distances,
)
from ledger.protocol.types import ClientId

RULES = pytest.mark.parametrize("rule", [SQUARED, DIRECTION], ids=["squared", "direction"])


def round_of(vectors: Sequence[np.ndarray] | np.ndarray) -> dict[ClientId, np.ndarray]:
    """Updates of clients 0, 10, 20, ..."""
    return {ClientId(10 * place): vector for place, vector in enumerate(vectors)}


def draws(seed: int, count: int, dimension: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, dimension)).astype(np.float32)


def other_tile() -> Distances:
    processor = this_processor()
    code = compiled(replace(processor, tile=6 - processor.tile))
    return distances_by(partial(StreamedSquares, code, 1))


def older_processor() -> Distances:
    """Distances by the code that this machine would run if it were ten years older."""
    if "+fma" not in this_processor().features:
        pytest.skip("needs an x86 processor")
    code = compiled(Processor("haswell", "+avx2,+fma", 2))
    return distances_by(partial(StreamedSquares, code, 1))


CODES = {
    "one thread": fast_distances,
    "two threads": lambda: fast_distances(2),
    "other tile": other_tile,
    "older processor": older_processor,
}
ALL = CODES | {"blocked": lambda: distances_by(BlockedSquares)}
"""Also the code without the extra `fast`, whose sums have another order."""


def require_equal(
    fast: Distances,
    rule: DistanceRule,
    vectors: np.ndarray,
    members: Sequence[int],
    travel: Travel = None,
) -> None:
    """Hold fast distances to a hundredth of what the rule tolerates."""
    updates = round_of(vectors)
    asked = [ClientId(10 * member) for member in members]
    found = fast(rule, travel, updates, asked)
    expected = plain_distances(rule, travel, updates, asked)
    assert found.dtype == np.float64
    assert found.shape == expected.shape
    margins = RELATIVE_TOLERANCE * expected
    if rule == DIRECTION:
        margins = margins + direction_distances(updates, travel).margins
    assert (np.abs(found - expected) <= margins / 100).all()
