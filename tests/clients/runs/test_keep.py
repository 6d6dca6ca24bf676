"""What a machine keeps of the payloads changes no result, and an audit says what it lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clients.simulation import SimulatedActors
from ledger.audit.engine import audit
from ledger.audit.report import AuditOutcome, AuditStep, StepOutcome
from ledger.protocol.types import DropoutReason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from clients.adversaries.attack_memory import AttackMemory
    from clients.runs.population import Population
    from clients.training.port import Engine
    from ledger.protocol.types import ClientId, Digest
    from tests.clients.played import Played, Player

ROUNDS = 2
SETTINGS = (f"protocol.rounds={ROUNDS}", "malice.trainers.not-finite=1")


def payloads_of(played: Played, number: int) -> dict[ClientId, Digest]:
    record = played.record(number)
    malformed = {d.client: d.payload for d in record.dropouts if d.payload is not None}
    return malformed | record.payloads()


def expected(played: Played, keep: str) -> set[Digest]:
    payloads = {t: payloads_of(played, t) for t in range(1, ROUNDS + 1)}
    named = {digest for found in payloads.values() for digest in found.values()}
    if keep == "accepted":
        decided = {t: played.decided(t) for t in payloads}
        kept = {payloads[t][c] for t, end in decided.items() if end for c in end.accepted}
    else:
        kept = {
            digest for t in payloads if t > ROUNDS - int(keep) for digest in payloads[t].values()
        }
    return set(played.blobs.digests()) - (named - kept)


def unchecked(played: Played) -> set[AuditStep]:
    report = audit(played.ledger, played.blobs)
    assert report.outcome is AuditOutcome.INCOMPLETE
    found = {step.number: step.outcome for step in report.steps}
    assert StepOutcome.FAILED not in found.values()
    return {number for number, outcome in found.items() if outcome is not StepOutcome.PASSED}


def overlapping(
    population: Population, engine: Engine, *, overlaps: bool, memory: AttackMemory | None
) -> SimulatedActors:
    """Return a cast of two cores, though one worker was asked for."""
    assert not overlaps
    return SimulatedActors(population, engine, overlaps=True, memory=memory)


@pytest.mark.parametrize(
    ("keep", "lacking"),
    [
        ("accepted", {AuditStep.BLOBS, AuditStep.DISTANCES}),
        ("1", {AuditStep.BLOBS, AuditStep.DISTANCES, AuditStep.MODEL}),
    ],
)
def test_the_head_is_equal_and_the_audit_names_incomplete_steps(
    player: Player,
    other: Player,
    monkeypatch: pytest.MonkeyPatch,
    keep: str,
    lacking: Iterable[AuditStep],
) -> None:
    whole = player.play(*SETTINGS)
    monkeypatch.setattr("clients.runs.open_run.SimulatedActors", overlapping)
    kept = other.play(*SETTINGS, f"machine.keep={keep}")
    assert kept.head == whole.head
    assert other.metrics() == player.metrics()
    assert set(kept.blobs.digests()) == expected(whole, keep)
    assert audit(whole.ledger, whole.blobs).outcome is AuditOutcome.PASSED
    gone = range(1, ROUNDS + 1 if keep == "accepted" else ROUNDS)
    dropouts = [dropout for number in gone for dropout in whole.record(number).dropouts]
    malformed = {d.payload for d in dropouts if d.reason is DropoutReason.PAYLOAD_MALFORMED}
    # A later round can have dropped the same bytes, and keeps them.
    if malformed - set(kept.blobs.digests()):
        lacking = {*lacking, AuditStep.COMPLETENESS}
    assert unchecked(kept) == set(lacking)


@pytest.mark.parametrize(("keep", "after"), [("accepted", False), ("1", True)])
def test_a_killed_run_reaches_equal_blobs(
    player: Player, other: Player, keep: str, after: bool
) -> None:
    whole = player.play(*SETTINGS)
    settings, cuts = (*SETTINGS, f"machine.keep={keep}"), 0
    while other.cut(*settings, left=1, after=after):
        cuts += 1
    resumed = other.play(*settings)
    assert cuts > 2 * ROUNDS
    assert resumed.head == whole.head
    assert set(resumed.blobs.digests()) == expected(whole, keep)


def test_a_resumed_run_may_retain_less_than_before(player: Player, other: Player) -> None:
    whole = player.play(*SETTINGS)
    other.play(*SETTINGS)
    again = other.play(*SETTINGS, "machine.keep=1")
    assert again.head == whole.head
    assert set(again.blobs.digests()) == expected(whole, "1")
