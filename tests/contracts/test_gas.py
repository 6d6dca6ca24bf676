"""What transactions cost is in the repository, exactly, so that a change of it is seen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.ledger import GAS_SNAPSHOT, gas_snapshot

SNAPSHOT: dict[str, dict[str, int]] = json.loads(GAS_SNAPSHOT.read_text("utf-8"))


@pytest.mark.slow
def test_gas_is_what_the_snapshot_says(tmp_path: Path) -> None:
    # If it is meant: python -m contracts.build && python -m benchmarks.ledger
    assert gas_snapshot(tmp_path) == SNAPSHOT


@pytest.mark.parametrize(
    ("size", "each_commitment", "decide"),
    [
        ("4 members, 6 trainers", 16_600, 150_000),
        ("7 members, 20 trainers", 11_200, 185_000),
        ("21 members, 65 trainers", 9_600, 330_000),
        ("43 members, 65 trainers", 9_400, 475_000),
    ],
)
def test_a_round_stays_within_its_gas(size: str, each_commitment: int, decide: int) -> None:
    assert SNAPSHOT[size]["commit_updates, third round, each client"] <= each_commitment
    assert SNAPSHOT[size]["decide, third round"] <= decide
