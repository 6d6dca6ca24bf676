"""The study of elections: each way to elect, and that a run is played by it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from benchmarks.elections import STUDIED, ElectionCell, play
from clients.configuration.loading import load
from clients.runs.open_run import open_memory_run
from ledger.protocol.types import ClientId

RANKED = tuple(map(ClientId, (5, 2, 9, 7, 1, 8, 0, 3, 6)))
SMALL = ("protocol.rounds=2", "protocol.clients=20", "training.local_steps=2")


def test_elections_by_pencil() -> None:
    assert STUDIED["middle of accepted"](RANKED, 7, 3) == (9, 7, 1)
    assert STUDIED["middle of accepted"](RANKED, 2, 3) == (5, 2, 9)


def test_a_lot_is_drawn_anew_from_each_ranking_in_its_order() -> None:
    draw = STUDIED["lot of all"]
    drawn = draw(RANKED, 7, 3)
    assert drawn == draw(RANKED, 7, 3) != draw(RANKED[::-1], 7, 3)
    assert sorted(drawn, key=RANKED.index) == list(drawn)


def test_a_run_is_played_by_its_election() -> None:
    cells = [
        ElectionCell("robust", SMALL, "peers", name, "back-gradient", 0.3, 5)
        for name in ("middle", "lot of accepted", "lot of all")
    ]
    middle, lot, of_all = (play(cell, lambda _name: None) for cell in cells)
    assert middle != lot != of_all != middle
    attacked = ('malice.attack="back-gradient"', "malice.malicious_rate=0.3", "seed=5")
    configuration = load("robust", settings=(*SMALL, *attacked))
    with (
        tempfile.TemporaryDirectory() as folder,
        open_memory_run(Path(folder), "run", configuration) as run,
    ):
        rows = run.go_on(lambda _row: None)
    assert lot.accuracy == pytest.approx(sum(row.accuracy or 0 for row in rows) / 2)
