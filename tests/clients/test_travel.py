"""Whole runs whose distances follow the travel: the same however they are played, and audited."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from clients.runs.open_run import open_memory_run
from ledger.actors import run_models
from ledger.audit.engine import audit
from ledger.audit.report import AuditOutcome
from ledger.audit.report_text import readable
from ledger.protocol.rules import direction
from tests.clients.played import configured

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from clients.adversaries.attackers import Attackers, AttackRound
    from tests.clients.played import Player

ALONG = ("protocol.strategy=3", "protocol.rounds=3")
ATTACKED = ('malice.attack="back-gradient"', "malice.malicious_rate=0.2")


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (direction, run_models):
        monkeypatch.setattr(module, "WINDOW", 1)


def test_a_resumed_run_has_the_head_of_one_in_memory(
    player_on_file: Player, tmp_path: Path
) -> None:
    # In round 3, whose travel begins with a model that only the store has.
    player = player_on_file
    assert player.cut(*ALONG, left=7, after=True)
    played = player.play(*ALONG)
    report = audit(played.ledger, played.blobs)
    assert report.outcome is AuditOutcome.PASSED, readable(report)
    with open_memory_run(tmp_path, "memory", configured(*ALONG)) as run:
        run.go_on(lambda _: None)
        assert run.simulation.head == played.head


def test_attackers_see_the_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[NDArray[np.float32] | None] = []
    models: list[NDArray[np.float32]] = []
    settings = configured(*ALONG, *ATTACKED)
    with open_memory_run(tmp_path, "run", settings) as run:
        attackers = type(run.population.attackers)
        corrupt = attackers.corrupt

        def watched(self: Attackers, updates: dict, context: AttackRound) -> dict:  # type: ignore[type-arg]
            seen.append(context.travel)
            return corrupt(self, updates, context)

        monkeypatch.setattr(attackers, "corrupt", watched)
        models.append(run.simulation.model)
        run.go_on(lambda _: models.append(run.simulation.model))
    assert seen[0] is None
    for place, found in enumerate(seen[1:], start=1):
        assert found is not None
        assert np.array_equal(found, models[place - 1] - models[place])
    assert len(seen) == 3
