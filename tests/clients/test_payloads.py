"""Runs whose updates are rounded, whose distances follow the travel, and what attacks fall to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clients.adversaries.faults import TrainerFault
from clients.configuration.loading import load
from clients.runs.metrics import RoundMetrics
from clients.runs.open_run import open_memory_run, open_run
from ledger.actors import observer
from ledger.audit.engine import audit
from ledger.audit.report import AuditOutcome, AuditStep
from ledger.audit.report_text import readable
from ledger.protocol.encoding import sha256
from ledger.protocol.payloads import NOT_ENCODABLE, Q8
from ledger.protocol.rules import direction
from ledger.protocol.types import DropoutReason
from tests.audit.blobs import ChangedBlobs
from tests.clients.played import Played, Player, configured
from tests.clients.replay.support import OTHER, SAME, repeated, verdicts

ROUNDED = ("protocol.payload=q8", "protocol.rounds=2")
ATTACKED = (
    *ROUNDED,
    "protocol.clients=20",
    "protocol.active_rate=0.75",
    "protocol.committee_rate=0.333333",
    "malice.attack=gaussian",
    "malice.malicious_rate=0.2",
    "malice.members.false-reference=2",
    "malice.trainers.not-finite=2",
    "malice.trainers.wrong-length=2",
)


def payloads_of(played: Played) -> dict[tuple[int, int], bytes]:
    return {
        (row.round, update.client): played.blobs.get(update.payload)
        for row in played.rows
        for update in played.record(row.round).updates
    }


def test_forged_and_honest_updates_are_published_in_one_byte_a_number(player: Player) -> None:
    played = player.play(*ATTACKED)
    dimension = played.run.population.model.dimension
    published = payloads_of(played)
    assert {len(payload) for payload in published.values()} == {Q8.size(dimension)}
    malicious = played.population.malicious
    assert {client for _, client in published} & malicious
    assert {client for _, client in published} - malicious
    faults = played.population.trainer_faults
    dropouts = {
        d.client: d.reason for row in played.rows for d in played.record(row.round).dropouts
    }
    assert dropouts
    assert set(dropouts.values()) == {DropoutReason.PAYLOAD_MALFORMED}
    assert {faults[c] for c in dropouts} <= {TrainerFault.NOT_FINITE, TrainerFault.WRONG_LENGTH}
    assert audit(played.ledger, played.blobs).outcome is AuditOutcome.PASSED


def test_one_changed_byte_is_named_by_the_audit(player: Player) -> None:
    played = player.play(*ROUNDED)
    update = played.record(1).updates[-1]
    payload = bytearray(played.blobs.get(update.payload))
    payload[-60] ^= 1
    report = audit(played.ledger, ChangedBlobs(played.blobs, {update.payload: bytes(payload)}))
    contradiction = report.step(AuditStep.BLOBS).contradiction
    assert contradiction is not None
    assert contradiction.clients == (update.client,)


def test_training_is_repeated_to_the_published_byte(player: Player) -> None:
    played = player.play(*ROUNDED, "malice.attack=ipm", "malice.malicious_rate=0.2")
    result = repeated(played)
    malicious = played.population.malicious
    for client, seen in verdicts(result).items():
        assert seen == {OTHER if client in malicious else SAME}
    forged = [update for update in result.updates if update.client in malicious]
    assert forged
    assert all(update.difference is not None for update in forged)


def test_updates_that_diverge_are_malformed_and_decide_nothing(player: Player) -> None:
    diverging = ("protocol.rounds=1", "training.learning_rate=3e38", "training.local_steps=9")
    played = player.play(*ROUNDED, *diverging)
    (row,) = played.rows
    assert not row.decided
    assert set(played.commitments(1)) == {*row.trained, *row.served}
    assert not played.blobs.has(sha256(b""))
    assert played.blobs.get(sha256(NOT_ENCODABLE)) == NOT_ENCODABLE


ALONG = ("protocol.strategy=3", "protocol.rounds=3")


# A resumed run recomputes the way of the models, and has the bytes of a form that rounds.
@pytest.mark.parametrize(("settings", "left"), [(ALONG, 7), (ROUNDED, 6)])
def test_a_resumed_run_has_the_head_of_one_in_memory(
    player_on_file: Player,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
    left: int,
) -> None:
    for module in (direction, observer):
        monkeypatch.setattr(module, "WINDOW", 1)
    player = player_on_file
    # Cut in round 3, whose travel begins with a model that only the store has.
    assert player.cut(*settings, left=left, after=True)
    played = player.play(*settings)
    report = audit(played.ledger, played.blobs)
    assert report.outcome is AuditOutcome.PASSED, readable(report)
    with open_memory_run(tmp_path, "memory", configured(*settings)) as run:
        run.go_on(lambda _: None)
        assert run.ledger.state().head == played.head


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
