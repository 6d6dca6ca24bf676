"""Committees whose attackers can certify a false model: by pencil, and as they are published."""

from __future__ import annotations

import json
from functools import cache

import pytest

from benchmarks import captured_committees as committees
from benchmarks.captured_committees import captured, recorded
from benchmarks.harness import MEASURED
from benchmarks.paper.tables import certifying
from clients.configuration.tested_regime import chance_of_at_least
from clients.experiments.rows import read_experiments
from ledger.protocol.types import Quorum


def test_a_byzantine_quorum_needs_no_more_of_twelve_members() -> None:
    assert [certifying(members) for members in (12, 15, 18, 21)] == [8, 9, 11, 12]
    assert [certifying(members, Quorum.BFT) for members in (12, 15, 18, 21)] == [8, 10, 12, 14]


def test_a_first_committee_is_captured_by_the_hypergeometric_law(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(committees, "ROUNDS", 1)
    expected = float(chance_of_at_least(7, 12, 24, 60))
    assert captured(60, (12, 18), 0.4, 7) == pytest.approx(expected, abs=0.01)
    # A committee of all trainers is the sample of these: of 6 clients, the other three.
    monkeypatch.setattr(committees, "ROUNDS", 2)
    assert captured(6, (3, 3), 0.5, 2) == 1.0
    assert captured(6, (3, 3), 0.5, 3) == pytest.approx(2 / 20, abs=0.01)
    assert captured(60, (12, 18), 0.1, 7) == 0.0


def test_the_published_table_is_of_these_sizes_and_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = cache(read_experiments)  # most of the time, and each recorded share reads again
    monkeypatch.setattr(committees, "read_experiments", reading)
    published = json.loads((MEASURED / "captured_committees.json").read_bytes())
    lines = [line.strip("| ").split(" | ") for line in published["table"][2:]]
    places = [(k, sizes) for k in committees.CLIENTS for sizes in committees.SIZES]
    for line, (clients, sizes) in zip(lines, places, strict=True):
        share = captured(clients, sizes, 0.3, certifying(sizes[0]), runs=4000)
        assert float(line[4]) == pytest.approx(share, abs=0.03)
        if clients == 60:
            played = recorded("robustness-worst-committees", sizes)
            assert tuple(line[7:9]) == played, "run: benchmarks.captured_committees"
    assert published["preset"] == recorded("robustness-worst", (12, 18))[0]
