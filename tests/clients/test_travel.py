"""Whole runs whose distances follow the travel: the same however they are played, and audited."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

    from tests.clients.played import Player

ALONG = ("protocol.strategy=3", "protocol.rounds=3")


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
