"""What the paper's rules fall to, and what the preset `robust` does about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.configuration.loading import load
from clients.runs.open_run import open_run

if TYPE_CHECKING:
    from clients.runs.metrics import RoundMetrics
    from tests.clients.played import Player

ZEROS = ("malice.attack=same-value", "malice.malicious_rate=0.3", "protocol.rounds=6")


def rows_of(player: Player, preset: str) -> list[RoundMetrics]:
    configuration = load(preset, settings=ZEROS)
    with open_run(player.home, preset, configuration, player.chain, player.blobs) as run:
        return run.go_on(lambda _: None)


def test_zeros_enter_under_squared_distance_by_strategy_one(player: Player) -> None:
    rows = rows_of(player, "digits")
    sent = sum(row.malicious_trained for row in rows)
    assert sent > 20
    assert sum(row.malicious_accepted for row in rows) > 0.8 * sent


def test_zeros_have_no_direction_and_never_enter_robustly(player: Player) -> None:
    rows = rows_of(player, "robust")
    assert sum(row.malicious_trained for row in rows) > 20
    assert sum(row.malicious_accepted for row in rows) == 0
