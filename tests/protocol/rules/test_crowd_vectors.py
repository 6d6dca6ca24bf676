"""References `crowd` and `peers` give what other programs gave (`tests/vectors/`).

`crowd.json` is of plain Python and NumPy; the environment variable CMFL_CROWD_VECTORS names another
file of the same form to read instead. `peers.json` is of `benchmarks/crowding`, which shares no
code with the product.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ledger.distances.fast import fast_distances
from ledger.protocol.rules.direction import DirectionMeasure
from ledger.protocol.rules.distance import (
    DistanceContext,
    Distances,
    ServerDirection,
    plain_distances,
)
from ledger.protocol.rules.reference import LengthPenalty, displacement
from ledger.protocol.rules.registry import DISTANCES, REFERENCES
from ledger.protocol.types import ClientId
from tests.support.keys import ids

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ledger.protocol.rules.reference import ReferenceRule

VECTORS = Path(__file__).parents[2] / "vectors"
FILES = (
    Path(os.environ.get("CMFL_CROWD_VECTORS", VECTORS / "crowd.json")),
    VECTORS / "peers.json",
)
CASES = [
    pytest.param(REFERENCES[file["reference"]], case, id=f"{file['reference']}-{case['kind']}")
    for file in (json.loads(path.read_text("utf-8")) for path in FILES)
    for case in file["cases"]
]


def f4(text: str) -> NDArray[np.float32]:
    return np.frombuffer(bytes.fromhex(text.removeprefix("0x")), dtype="<f4")


@pytest.mark.parametrize(("reference", "case"), CASES)
@pytest.mark.parametrize("compute", [plain_distances, fast_distances()], ids=["plain", "fast"])
def test_crowding_and_distances_are_those_of_the_file(
    compute: Distances, reference: ReferenceRule, case: dict[str, Any]
) -> None:
    assert reference.direction_weight is not None
    assert reference.asks_all
    updates = {ClientId(i): f4(text) for i, text in enumerate(case["updates"])}
    members = ids(*case["members"])
    travel = None
    if case["model_s"] is not None:
        vector = displacement(f4(case["model_s"]), f4(case["model_t"]))
        travel = ServerDirection(vector, tuple(updates), reference.direction_weight)
    context = DistanceContext((), travel, reference.penalty, reference.compares_all)
    measure = DirectionMeasure(updates, travel, LengthPenalty.CROWDED_SUMMAND)
    assert measure.multiple == pytest.approx(float.fromhex(case["b"]), rel=1e-9, abs=1e-11)
    assert measure.crowding.base == pytest.approx(float.fromhex(case["base"]), rel=1e-9)
    values = dict(
        zip((c for c, u in updates.items() if u.any()), measure.crowding.values, strict=True)
    )
    factors = {client: float.fromhex(text) for client, text in case["factor"].items()}
    for client, text in case["crowding"].items():
        crowding = float.fromhex(text)
        assert values[ClientId(int(client))] == pytest.approx(crowding, rel=1e-9, abs=1e-12)
    found = compute(DISTANCES["direction"], context, updates, members)
    for row, expected in zip(found, case["expected"], strict=True):
        for place, trainer in enumerate(case["trainers"]):
            true, f = float.fromhex(expected[place]), float.fromhex(case["length"][trainer])
            g = factors.get(str(trainer), 1.0)
            update = updates[ClientId(trainer)]
            assert measure.factor(update) == pytest.approx(f, rel=1e-12)
            assert measure.crowding_excess(update) ** 4 == pytest.approx(g, rel=1e-9)
            # As the file's own `tolerance` has it.
            assert abs(row[trainer] - true) <= 1e-9 * true + 1e-10 * f * g
