"""A run killed many times loses nothing, repeats nothing, and ends in the same head."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clients.configuration.loading import load
from clients.runs.open_run import open_run
from clients.runs.run_folder import manifest_of
from ledger.audit.engine import audit
from ledger.audit.report import AuditOutcome
from ledger.audit.report_text import readable
from ledger.chain.contract.deploy import connect
from ledger.chain.contract.ledger import Manifest, read_manifest
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.storage.blobs import FolderBlobs, MemoryBlobs
from tests.e2e.sessions import Home, finish, kill_when
from tests.faults import times

if TYPE_CHECKING:
    from tests.processes import Forks

KILLS = times(5, 20)
STARTS = times(1, 5)
ROUNDS = times(12, 120)
START_SECONDS = 0.5
"""About how long a process takes from its start to its first round; only spreads the kills."""

# Liars, silent members and equivocators: rounds are abandoned and clients banned on the way.
FAULTS = (
    "training.path=plain",
    "protocol.clients=14",
    "protocol.active_rate=0.857143",
    "protocol.committee_rate=0.416667",
    "protocol.commit_blocks=1",
    "protocol.deadline_blocks=3",
    "malice.members.equivocating=2",
    "malice.members.silent=2",
    "malice.members.false-scores=1",
    "malice.trainers.not-finite=1",
)


def uninterrupted(
    folder: Path, settings: tuple[str, ...], killed: Manifest
) -> tuple[str, bytes, str]:
    """Return head, rows and contract of the same run played without a pause.

    What is signed names chain and contract, so both are those of the run that was killed: the
    chain has its id, and the deployer has sent as many transactions before.
    """
    folder.mkdir()
    path, configuration = folder / "chain.sqlite", load("smoke", settings=settings)
    with EmbeddedChain.create(path, chain_id=killed.chain_id, synchronous="NORMAL") as chain:
        for _ in range(killed.block - 1):
            chain.send(killed.address, b"", 30_000)
        with open_run(folder, "run", configuration, chain, MemoryBlobs()) as run:
            run.go_on(lambda _: None)
            manifest = manifest_of(folder, "run")
            ledger = connect(chain, manifest)
            rows = run.folder.paths.metrics.read_bytes()
            return ledger.state().head.hex(), rows, manifest.address


def moments(home: Home, rng: random.Random) -> list[tuple[str, Callable[[], bool], float]]:
    """Return when to kill each session: while it is made, while it starts, while it runs."""

    def rows_after(more: int) -> Callable[[], bool]:
        first: list[int] = []

        def reached() -> bool:
            if not first:
                first.append(home.rows())
            return home.rows() >= first[0] + more

        return reached

    made = [
        ("chain", home.chain.exists, rng.uniform(0, 0.05)),
        ("configuration", home.configuration.exists, rng.uniform(0, 0.05)),
        ("manifest", home.manifest.exists, rng.uniform(0, 0.01)),
    ]
    starting = [("start", lambda: True, rng.uniform(0, START_SECONDS)) for _ in range(STARTS)]
    running = [
        ("rounds", rows_after(rng.randint(1, 4)), rng.uniform(0, 0.08))
        for _ in range(KILLS - len(made) - len(starting))
    ]
    rest = starting + running
    rng.shuffle(rest)
    return made + rest


@pytest.mark.slow
@pytest.mark.xdist_group("processes")
def test_kills_at_random_moments_lose_and_repeat_no_round(forks: Forks, tmp_path: Path) -> None:
    settings = (*FAULTS, f"protocol.rounds={ROUNDS}")
    home = Home(tmp_path / "home", settings)
    recorded: list[tuple[int, str]] = []
    kills = 0
    for name, moment, delay_seconds in moments(home, random.Random(2)):
        kills += kill_when(home.start(forks), moment, delay_seconds)
        now = home.ended_rounds()
        assert now[: len(recorded)] == recorded, f"a round was lost by the kill at: {name}"
        assert [number for number, _ in now] == list(range(1, len(now) + 1))
        recorded = now
    assert kills == KILLS, "the run came to its end before its last kill"
    assert 0 < len(recorded) < ROUNDS
    assert home.journal.exists(), "what was signed before a kill is known after it"
    answer = finish(home.start(forks))
    manifest = read_manifest(home.manifest)
    head, rows, address = uninterrupted(tmp_path / "whole", settings, manifest)
    assert address == manifest.address
    assert answer["head"] == f"0x{head}"
    assert home.ended_rounds()[-1] == (ROUNDS, head)
    assert home.metrics.read_bytes() == rows
    numbers = [json.loads(line)["round"] for line in rows.splitlines()]
    assert numbers == list(range(1, ROUNDS + 1))
    with EmbeddedReader.open(home.chain) as chain:
        ledger = connect(chain, read_manifest(home.manifest))
        assert ledger.bans()
        report = audit(ledger, FolderBlobs(home.path / "blobs"))
        assert report.outcome is AuditOutcome.PASSED, readable(report)


@pytest.mark.slow
@pytest.mark.xdist_group("processes")
@pytest.mark.parametrize("place", ["chain", "configuration", "manifest"][: times(1, 3)])
def test_a_run_killed_during_deployment_can_be_restarted(
    forks: Forks, tmp_path: Path, place: str
) -> None:
    home = Home(tmp_path / "home", ("training.path=plain", "protocol.rounds=1"))
    path = {"chain": home.chain, "configuration": home.configuration, "manifest": home.manifest}
    assert kill_when(home.start(forks), path[place].exists, 0)
    assert finish(home.start(forks))["round"] == 1
    assert [number for number, _ in home.ended_rounds()] == [1]
    assert home.rows() == 1
    assert home.journal.exists()
