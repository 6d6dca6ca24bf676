"""FedAvg and the three strategies share everything but the method, and CMFL's runs are recorded."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from clients.comparison import METHODS, Comparison
from clients.configuration import load
from clients.runs import manifest_of
from ledger.audit.audit import audit
from ledger.chain.deployment import connect

if TYPE_CHECKING:
    from tests.clients.played import Player

ATTACKED = load(
    "smoke",
    settings=(
        "protocol.rounds=3",
        "malice.attack=back-gradient",
        "malice.malicious_rate=0.3",
        "malice.members.false-scores=1",
    ),
)


def test_each_method_runs_clean_and_attacked_and_each_recorded_run_passes_its_audit(
    player: Player,
) -> None:
    comparison = Comparison(player.home, player.chain, player.blobs, ATTACKED, [0])
    seen: list[tuple[str, int, int]] = []
    outcomes = comparison.run(lambda *progress: seen.append(progress))
    assert {(o.method, o.attacked) for o in outcomes} == {
        (method, attacked) for method in METHODS for attacked in (True, False)
    }
    assert len(outcomes) == 8
    assert len(seen) == 8 * 3
    assert seen[:3] == [("FedAvg-attacked-seed0", number, 3) for number in (1, 2, 3)]
    for outcome in outcomes:
        assert (outcome.run is None) == (outcome.method == "FedAvg")
        if outcome.run is None:
            continue
        ledger = connect(player.chain, manifest_of(player.home, outcome.run))
        assert int(ledger.deployment().strategy) == METHODS.index(outcome.method)
        assert audit(ledger, player.blobs).ok


def test_an_outcome_counts_every_round_of_a_run_that_was_taken_up_again(player: Player) -> None:
    comparison = Comparison(player.home, player.chain, player.blobs, ATTACKED, [0])
    whole = comparison.one("I", 0, attacked=True, on_round=lambda *_: None)
    again = comparison.one("I", 0, attacked=True, on_round=lambda *_: None)
    assert again == whole
    played = player.play(
        "protocol.rounds=3",
        "malice.attack=back-gradient",
        "malice.malicious_rate=0.3",
        "malice.members.false-scores=1",
    )
    assert whole.accuracy == fmean(row.accuracy for row in played.rows)
