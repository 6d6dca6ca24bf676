"""One run played twice at the same time: by one home it is refused, by two it is an error."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.runs.open_run import open_memory_run, open_run
from ledger.io.home import Home, run_lock
from ledger.protocol.errors import ChainError, ConfigurationError
from tests.clients.played import Player, configured, playing

ONE_ROUND = "protocol.rounds=1"


@pytest.fixture
def player(tmp_path: Path) -> Iterator[Player]:
    with playing(tmp_path / "home") as found:
        yield found


def test_a_run_that_is_being_played_is_refused(player: Player) -> None:
    configuration = configured(ONE_ROUND)
    both = (player.home, "run", configuration, player.chain, player.blobs)
    with open_run(*both) as run:
        rows = run.go_on(lambda _: None)
        before = player.metrics()
        with pytest.raises(ConfigurationError, match="plays or deploys it"), open_run(*both):
            pass
        with open_run(player.home, "other", configuration, player.chain, player.blobs):
            pass
    assert player.metrics() == before
    with open_run(*both) as again:
        assert (len(rows), again.go_on(lambda _: None)) == (1, [])


def test_a_memory_run_that_is_being_played_is_refused(tmp_path: Path) -> None:
    with (
        run_lock(Home(tmp_path).run("run")),
        pytest.raises(ConfigurationError, match="plays or deploys it"),
        open_memory_run(tmp_path, "run", configured(ONE_ROUND)),
    ):
        pass
    assert not Home(tmp_path).run("run").configuration.exists()


def test_a_round_that_a_copy_ends_is_no_internal_error(player: Player, tmp_path: Path) -> None:
    """The copy ends the round at each step of the run's own; the run goes on, or is refused."""
    found = [ended_by_copy(player, tmp_path, step) for step in range(0, 40, 2)]
    assert set(found) == {True, False}


def ended_by_copy(player: Player, folder: Path, step: int) -> bool:
    configuration, name = configured("protocol.rounds=2"), f"run-{step}"
    copy, steps = folder / f"copy-{step}", iter(range(step + 1))
    with open_run(player.home, name, configuration, player.chain, player.blobs) as run:
        shutil.copytree(player.home / "runs" / name, copy / "runs" / name)
        with open_run(copy, name, configuration, player.chain, player.blobs) as other:

            def end_round(_: object) -> None:
                if next(steps, None) == step:
                    other.simulation.play_round()

            run.simulation.on_step = end_round
            try:
                run.simulation.play_round()
            except ChainError:
                return False
            return True
