"""Updates that were trained under a cap of the instruction set, repeated under it and others."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from clients.devices import InstructionSet, available_caps
from clients.replay.replay_inputs import ReplayRequest
from clients.replay.results import TrainingReplay
from clients.training.pool_engine import PoolEngine
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.training_replay import ReplayVerdict
from tests.clients.replay.support import NOT_CHECKABLE, SAME, here, repeated

if TYPE_CHECKING:
    from tests.clients.played import Player

pytestmark = pytest.mark.xdist_group("processes")

ONE_ROUND = ("protocol.rounds=1", "training.path=plain")
CAPPABLE = pytest.mark.skipif(
    "default" not in available_caps(), reason="this processor has no instruction set to choose"
)


def under(cap: InstructionSet) -> ReplayRequest:
    return ReplayRequest(settings=(f"machine.isa={cap}",))


def found(result: TrainingReplay) -> set[ReplayVerdict]:
    return {update.verdict for update in result.updates}


@CAPPABLE
def test_a_recorded_cap_is_taken_and_others_accuse_nobody(player: Player) -> None:
    before = dict(os.environ)
    played = player.play(*ONE_ROUND, "machine.isa=default")
    assert isinstance(played.run.measure.gauge.engine, PoolEngine)
    assert dict(os.environ) == before
    ((first, recorded),) = played.run.folder.environments()
    assert (first, recorded) == (1, replace(here(), isa="default"))
    by_itself = repeated(played, recorded=recorded)
    assert by_itself.environment == recorded
    assert found(by_itself) == {SAME}
    other = available_caps()[-1]
    if other == "default":
        pytest.skip("this processor can do one cap alone")
    result = repeated(played, under(other), recorded=recorded)
    assert result.environment.isa == other
    assert found(result) <= {SAME, NOT_CHECKABLE}
    differing = [update for update in result.updates if update.verdict is NOT_CHECKABLE]
    assert all("--set machine.isa=default repeats" in update.reason for update in differing)
    distances = [update.difference for update in differing]
    assert all(distance is not None for distance in distances)
    # In proportion: far below what honest updates differ by.
    assert all((distance.spread or 0) < 0.01 for distance in distances if distance)


def test_unknown_kernels_repeat_nothing(player: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    played = player.play(*ONE_ROUND)
    was = here()
    monkeypatch.setenv("MKL_DEBUG_CPU_TYPE", "5")
    with pytest.raises(ConfigurationError, match=r"set machine\.isa instead"):
        repeated(played, recorded=was)
