"""A run on the memory ledger is the run on a fresh chain, and nobody can take it for a record."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from clients.runs.opening import in_memory
from ledger.home import Home
from ledger.protocol.errors import ConfigurationError
from tests.clients.played import FIVE_MEMBERS, configured

if TYPE_CHECKING:
    from pathlib import Path

    from clients.runs.metrics import RoundMetrics
    from tests.clients.played import Player

# Every fault comes to bear: a ban, refused scores, dropouts, and rounds that are abandoned.
FAULTS = (
    *FIVE_MEMBERS,
    "seed=10",
    "protocol.rounds=3",
    "protocol.commit_blocks=1",
    "protocol.deadline_blocks=3",
    "malice.members.silent=4",
    "malice.members.equivocating=2",
    "malice.members.false-scores=1",
    "malice.trainers.not-finite=1",
    "malice.trainers.stray=1",
    "malice.attack=same-value",
    "malice.malicious_rate=0.2",
)


def played_in_memory(
    home: Path, *settings: str
) -> tuple[list[RoundMetrics], bytes, tuple[object, ...]]:
    """Return the rows, the last model and the bans of a run on the memory ledger."""
    configuration = configured("machine.ledger=memory", *settings)
    with in_memory(home, "run", configuration) as run:
        rows = run.go_on(lambda _: None)
        return rows, run.simulation.model.tobytes(), run.ledger.bans()


def test_has_the_heads_models_and_rows_of_the_run_on_a_fresh_chain(
    player: Player, tmp_path: Path
) -> None:
    played = player.play(*FAULTS)
    rows, model, bans = played_in_memory(tmp_path / "memory", *FAULTS)
    assert [asdict(row) for row in rows] == [asdict(row) for row in played.rows]
    assert model == played.run.simulation.model.tobytes()
    assert bans == played.ledger.bans()
    assert len(bans) > 0
    assert {row.decided for row in rows} == {True, False}


def test_leaves_neither_chain_nor_blobs_nor_manifest(tmp_path: Path) -> None:
    home = Home(tmp_path / "memory")
    played_in_memory(home.path, "protocol.rounds=1")
    assert not home.chain.exists()
    assert not home.blobs.exists()
    assert home.deployed() == []
    assert home.run("run").metrics.exists()


def test_seeds_from_block_hashes_are_refused_before_anything_is_there(tmp_path: Path) -> None:
    home = tmp_path / "memory"
    with pytest.raises(ConfigurationError, match='beacon = "block"'):
        played_in_memory(home, "protocol.beacon=block")
    assert not home.exists()


def test_of_two_runs_of_one_name_that_are_started_at_once_one_is_refused(tmp_path: Path) -> None:
    configuration = configured("machine.ledger=memory")
    with (
        in_memory(tmp_path, "run", configuration),
        pytest.raises(ConfigurationError, match="there is a run 'run'"),
        in_memory(tmp_path, "run", configuration),
    ):
        pass
