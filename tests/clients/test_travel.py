"""Whole runs whose references follow the travel: the same however they are played, and audited."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from ledger.protocol.rules.reference import DirectionWeight, ReferenceRule

from clients.configuration.loading import load
from clients.runs.open_run import open_memory_run
from ledger.audit.engine import audit
from ledger.audit.report import AuditOutcome
from ledger.audit.report_text import readable
from ledger.protocol.errors import ParametersError
from ledger.protocol.rules import registry
from tests.clients.played import configured

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from clients.adversaries.attackers import Attackers, AttackRound
    from tests.clients.played import Player

ALONG = (
    'protocol.distance="direction"',
    'protocol.reference="short"',
    "protocol.strategy=3",
    'protocol.scoring="median"',
    "protocol.rounds=3",
)
CROWDED = (*ALONG, 'protocol.reference="crowd"', 'protocol.clip="median"')
ATTACKED = ('malice.attack="back-gradient"', "malice.malicious_rate=0.2")


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A travel with a window that a run of three rounds goes beyond."""
    rule = ReferenceRule(
        "short", DirectionWeight(window=1, slope=150.0, cap=3.0), "direction", "on a way"
    )
    monkeypatch.setitem(registry.REFERENCES, "short", rule)


def test_a_configuration_says_what_members_hold_updates_against() -> None:
    found = load("robust", settings=('protocol.reference="travel"',))
    assert found.parameters(8).direction_weight == registry.REFERENCES["travel"].direction_weight
    own = load("robust", settings=('protocol.reference="own"',))
    assert own.parameters(8).direction_weight is None
    with pytest.raises(ParametersError, match="reference = travel goes with distance = direction"):
        load("smoke", settings=('protocol.reference="travel"',))
    with pytest.raises(ParametersError, match="reference = north is none of own, travel"):
        load("robust", settings=('protocol.reference="north"',))


@pytest.mark.parametrize("settings", [ALONG, CROWDED], ids=["travel", "crowd"])
def test_a_resumed_run_has_the_memory_head_and_passes_audit(
    player_on_file: Player, tmp_path: Path, settings: tuple[str, ...]
) -> None:
    # In round 3, whose travel begins with a model that only the store has.
    player = player_on_file
    assert player.cut(*settings, left=7, after=True)
    played = player.play(*settings)
    report = audit(played.ledger, played.blobs)
    assert report.outcome is AuditOutcome.PASSED, readable(report)
    with open_memory_run(tmp_path, "memory", configured(*settings)) as run:
        run.go_on(lambda _: None)
        assert run.simulation.head == played.head


def test_attackers_see_the_travel_as_everybody_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
