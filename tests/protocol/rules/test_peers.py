"""Reference `peers`: the round's own median opinion of each update, the same for every member."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.distances.fast import fast_distances
from ledger.protocol.inputs import Participants, distance_context
from ledger.protocol.rules.distance import DistanceContext, ServerDirection, plain_distances
from ledger.protocol.rules.reference import PEERS, displacement
from ledger.protocol.rules.registry import DISTANCES
from ledger.protocol.types import ClientId
from tests.protocol.support import PENCIL, f32
from tests.support.keys import ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

RULE = DISTANCES["direction"]
CROWD_ROUNDS = json.loads((Path(__file__).parents[2] / "vectors" / "crowd.json").read_text("utf-8"))


def oracle(updates: NDArray[np.float64], travel: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return D of each update, by the formula of the protocol's text and not by its code."""
    norms = np.sqrt((updates**2).sum(1))
    usable, far = norms > 0, np.maximum(1, norms / (2 * np.median(norms) or np.inf)) ** 2
    u, n = updates[usable] / norms[usable, None], int(usable.sum())
    h = np.zeros(u.shape[1]) if travel is None or not travel.any() else unit(travel)
    a, pairs = u @ h, ((u[:, None] - u[None]) ** 2).sum(2)
    b = min(1, 5 * max(0, np.median(a))) if n else 0
    middle = [np.median(np.delete(pairs[k], k)) if n > 1 else 0 for k in range(n)]
    rho = np.maximum(0.5, np.sqrt(np.maximum(0, 1 - a**2)))
    q = (np.maximum(0, (u @ u.T - np.outer(a, a)) / np.outer(rho, rho) * (1 - np.eye(n))) ** 2).sum(
        1
    )
    base, m = 1e-3, np.median(q) if n else 0
    if n > 1:
        lonely = np.clip(2 - 3 * q / m, 0, 1) * min(1, 1000 * m) if m else np.zeros(n)
        base = max(base, np.interp((n - 1 + lonely.sum()) / 2, np.arange(n), np.sort(q)))
    g = np.maximum(1, q / (2.5 * base)) ** 4
    distances = np.full(len(updates), 4.0)
    distances[usable] = (middle + b * ((u - h) ** 2).sum(1)) / (1 + b) + (far[usable] * g - 1)
    return distances


def unit(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(vector / np.sqrt((vector**2).sum()))


def context_of(updates: Sequence[ClientId], travel: NDArray[np.float32] | None) -> DistanceContext:
    assert PEERS.direction_weight is not None
    direction = None
    if travel is not None:
        direction = ServerDirection(travel, tuple(updates), PEERS.direction_weight)
    return DistanceContext((), direction, PEERS.penalty, PEERS.compares_all)


def distances(
    rows: Sequence[NDArray[np.float32]],
    travel: NDArray[np.float32] | None,
    members: tuple[int, ...],
) -> NDArray[np.float64]:
    updates = {ClientId(i): row for i, row in enumerate(rows)}
    return plain_distances(RULE, context_of(tuple(updates), travel), updates, ids(*members))


def test_a_round_by_pencil() -> None:
    # Squared distances from the others: 2 and 2; 2 and 4; 2 and 4.
    rows = [f32(1, 0), f32(0, 1), f32(0, -1)]
    assert distances(rows, None, (0, 1)).tolist() == [[2, 3, 3], [2, 3, 3]]
    # Cosines .6, .8, -.8 with the travel: b is min(1, 5 * .6) = 1, ‖u - h‖² .8, .4, 3.6.
    along = distances(rows, f32(3, 4), (0,))[0]
    assert along == pytest.approx([1.4, 1.7, 3.3], rel=1e-12)


def test_the_travel_weighs_five_times_the_agreement_of_all() -> None:
    # Cosines .1, .1 and 0 with the travel: b is .5. Nobody crowds.
    rows = [f32(0.1, 0.99**0.5, 0, 0), f32(0.1, 0, 0.99**0.5, 0), f32(0, 0, 0, 1)]
    found = distances(rows, f32(1, 0, 0, 0), (2,))[0]
    assert found == pytest.approx(
        [(1.99 + 0.9) / 1.5, (1.99 + 0.9) / 1.5, (2 + 1.0) / 1.5], rel=1e-6
    )


def test_one_update_alone_has_no_others_to_be_far_from() -> None:
    assert distances([f32(2, 0)], None, (0,)).tolist() == [[0]]
    assert distances([f32(2, 0), f32(0, 0)], None, (0, 1)).tolist() == [[0, 4], [4, 4]]
    assert distances([f32(0, 0)], None, (0,)).tolist() == [[4]]


def test_members_of_one_update_have_no_opinion_of_their_own() -> None:
    # Five members the same, one honest; twelve honest updates share a cosine of .8.
    eye = np.eye(13, dtype=np.float32)
    honest = [2 * eye[0] + eye[place] for place in range(1, 13)]
    found = distances([*[-eye[0]] * 5, *honest], None, tuple(range(6)))
    assert (found == found[0]).all()
    assert found[0, 5:] == pytest.approx([0.4] * 12, rel=1e-6)
    assert found[0, :5] == pytest.approx([2 + 4 / 5**0.5] * 5, rel=1e-6)


def test_most_of_a_rounds_updates_decide_for_every_member() -> None:
    eye = np.eye(8, dtype=np.float32)
    most = [eye[0] + eye[place] for place in range(1, 5)]
    rows = [*most, *[eye[place] - eye[0] for place in (5, 6)]]
    for members in ((0, 1), (0, 4), (4, 5)):
        for found in distances(rows, None, members):
            assert (found < 2).tolist() == [True] * 4 + [False] * 2


def test_the_context_asks_all_in_every_round() -> None:
    seats = Participants(ids(7, 2, 5), ids(1, 3, 4), frozenset())
    parameters = replace(PENCIL, distance="direction", reference="peers")
    first = distance_context(parameters, (), 1, seats, None)
    assert first == context_of((), None)
    second = distance_context(parameters, (), 2, seats, f32(1.0))
    assert second.server_direction is not None
    assert second.server_direction.members == ids(1, 2, 3, 4, 5, 7)
    assert second.compares_all


def require_oracle(rows: list[NDArray[np.float32]], travel: NDArray[np.float32] | None) -> None:
    updates = {ClientId(i): row for i, row in enumerate(rows)}
    context = context_of(tuple(updates), travel)
    wide = None if travel is None else travel.astype(np.float64)
    expected = oracle(np.array(rows, dtype=np.float64), wide)
    measure = RULE.among(updates, context)
    margins = np.array([measure.tolerance(row, x) for row, x in zip(rows, expected, strict=True)])
    for compute in (plain_distances, fast_distances()):
        found = compute(RULE, context, updates, tuple(updates))
        seated = found[[row.any() for row in rows]]
        assert (np.abs(seated - expected) <= margins / 10).all()


@pytest.mark.parametrize("case", CROWD_ROUNDS["cases"], ids=lambda case: str(case["kind"]))
def test_distances_are_those_of_the_formula(case: dict[str, Any]) -> None:
    def f4(text: str) -> NDArray[np.float32]:
        return np.frombuffer(bytes.fromhex(text.removeprefix("0x")), dtype="<f4")

    known = case["model_s"] is not None
    travel = displacement(f4(case["model_s"]), f4(case["model_t"])) if known else None
    require_oracle([f4(text) for text in case["updates"]], travel)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_distances_are_those_of_the_formula(data: st.DataObject) -> None:
    dimension = data.draw(st.integers(1, 6))
    numbers = st.floats(-100, 100, width=32).map(lambda x: np.float32(x if abs(x) > 1e-3 else 0))
    row = st.lists(numbers, min_size=dimension, max_size=dimension).map(
        lambda values: np.array(values, dtype=np.float32)
    )
    require_oracle(data.draw(st.lists(row, min_size=1, max_size=9)), data.draw(st.none() | row))
