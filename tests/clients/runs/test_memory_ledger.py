"""A run on the memory ledger is the run on a fresh chain, and nobody can take it for a record."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import pytest

from clients.runs.open_run import open_memory_run
from ledger.io.home import Home
from ledger.protocol.errors import ConfigurationError
from tests.clients.played import FIVE_MEMBERS, configured
from tests.seeds import first_that_shows

if TYPE_CHECKING:
    from pathlib import Path

    from clients.runs.metrics import RoundMetrics
    from tests.clients.played import Player

# Every fault may come to bear: a ban, refused scores, dropouts, and rounds that are abandoned.
FAULTS = (
    *FIVE_MEMBERS,
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


@dataclass(frozen=True)
class InMemory:
    seed: int
    rows: list[RoundMetrics]
    model: bytes
    bans: tuple[object, ...]

    @property
    def is_mixed(self) -> bool:
        return {row.decided for row in self.rows} == {True, False} and len(self.bans) > 0


def played_in_memory(home: Path, *settings: str, seed: int = 0) -> InMemory:
    configuration = configured("machine.ledger=memory", f"seed={seed}", *settings)
    with open_memory_run(home, "run", configuration) as run:
        rows = run.go_on(lambda _: None)
        return InMemory(seed, rows, run.simulation.model.tobytes(), run.ledger.bans())


def test_has_heads_models_and_rows_of_a_fresh_chain(player_on_file: Player, tmp_path: Path) -> None:
    here = first_that_shows(
        lambda one: one.is_mixed,
        lambda seed: played_in_memory(tmp_path / f"memory{seed}", *FAULTS, seed=seed),
        first=10,
    )
    there = player_on_file.play(*FAULTS, f"seed={here.seed}")
    assert [asdict(row) for row in here.rows] == [asdict(row) for row in there.rows]
    assert here.model == there.run.simulation.model.tobytes()
    assert here.bans == there.ledger.bans()


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


def test_a_name_that_was_played_meanwhile_is_refused(tmp_path: Path) -> None:
    configuration = configured("machine.ledger=memory")
    with open_memory_run(tmp_path, "run", configuration):
        pass
    with (
        pytest.raises(ConfigurationError, match="there is a run 'run'"),
        open_memory_run(tmp_path, "run", configuration),
    ):
        pass
