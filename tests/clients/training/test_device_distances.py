"""What members publish: compiled on the processor, by torch on a GPU; both equal the plain rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from clients.training.device_distances import BLOCK, engine_distances, torch_distances
from ledger.distances.fast import fast_distances
from ledger.protocol.rules.distance import DIRECTION
from ledger.protocol.types import ClientId
from tests.clients.training.on_devices import needs_card
from tests.distances.support import RULES, draws, require_equal, round_of

if TYPE_CHECKING:
    from ledger.protocol.rules.distance import DistanceRule

by_torch = torch_distances(torch.device("cpu"))


@RULES
def test_the_processor_computes_what_an_auditor_does(rule: DistanceRule) -> None:
    updates = round_of(draws(0, 6, 5_000))
    asked = rule, None, updates, list(updates)[:3]
    expected = fast_distances()(*asked).tobytes()
    assert {engine_distances("cpu", threads)(*asked).tobytes() for threads in (1, 2)} == {expected}


def test_directions_by_pencil() -> None:
    # Lengths 1, 1, 8, 0: their median is 1, and 8 is four times twice that: f = 16.
    vectors = np.array([[1, 0], [0, 1], [-8, 0], [0, 0]], dtype=np.float32)
    found = by_torch(DIRECTION, None, round_of(vectors), [ClientId(0), ClientId(30)])
    # torch gives roots of sums, whose squares may differ in the last digit.
    assert found == pytest.approx(np.array([[3, 2, 18, 4]] * 2), rel=1e-15)


@pytest.mark.parametrize("agreement", [-0.5, 0.004, 0.5])
def test_along_a_travel_torch_agrees_with_the_plain_rule(agreement: float) -> None:
    vectors, travel = draws(0, 6, BLOCK + 5), draws(1, 1, BLOCK + 5)[0]
    vectors = (vectors + agreement * travel).astype(np.float32)
    vectors[5] = 0
    require_equal(by_torch, DIRECTION, vectors, [5, 0, 4], travel)


@RULES
@pytest.mark.parametrize("dimension", [1, 7, 2_049, BLOCK + 5])
def test_torch_agrees_with_the_plain_rule(rule: DistanceRule, dimension: int) -> None:
    require_equal(by_torch, rule, draws(0, 5, dimension), [4, 0, 4])


@RULES
@pytest.mark.parametrize("spread", [1.0, 1e-3, 1e-6])
def test_torch_stays_exact_among_similar_updates_and_a_huge_one(
    rule: DistanceRule, spread: float
) -> None:
    vectors = (draws(2, 1, 5_000) + spread * draws(3, 6, 5_000)).astype(np.float32)
    vectors[5] *= np.float32(1e6)
    require_equal(by_torch, rule, vectors, [0, 3, 5])


@RULES
def test_the_bytes_do_not_depend_on_the_callers_threads(rule: DistanceRule) -> None:
    updates = round_of(draws(8, 9, 9_001))
    before = torch.get_num_threads()
    try:
        found = set()
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            found.add(by_torch(rule, None, updates, list(updates)[:4]).tobytes())
    finally:
        torch.set_num_threads(before)
    assert len(found) == 1


@needs_card
@RULES
def test_cuda_repeats_its_own_bytes_and_agrees_with_the_processor(rule: DistanceRule) -> None:
    vectors = draws(9, 12, 200_003)
    updates = round_of(vectors)
    cuda = engine_distances("cuda")
    first, again = (cuda(rule, None, updates, list(updates)[:5]) for _ in range(2))
    assert first.tobytes() == again.tobytes()
    require_equal(cuda, rule, vectors, range(5))
    require_equal(cuda, rule, vectors, range(5), vectors[11])
