"""What a machine keeps of the payloads, and what a run on the memory ledger leaves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from clients.adversaries.attackers import AttackMemory
from clients.runs.metrics import RoundMetrics
from clients.runs.open_run import open_memory_run
from clients.runs.population import Population
from clients.simulation import SimulatedActors
from clients.training.port import Engine
from ledger.audit.engine import audit
from ledger.audit.report import AuditOutcome, AuditStep, StepOutcome
from ledger.io.home import Home
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId, Digest, DropoutReason
from tests.clients.played import FIVE_MEMBERS, Played, Player, configured, require_refused
from tests.seeds import first_that_shows

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
    require_refused(tmp_path, configuration, "already has a run 'run'")
