"""A run simulated and the same run by separate workers: two ways to drive the same steps."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from clients.configuration.loading import load
from clients.runs.open_run import open_memory_run
from clients.runs.population import populate, run_document, with_training_path
from clients.training.engine_factory import open_engine
from clients.training.environment import environment_here
from clients.worker.chain_clock import Moment
from clients.worker.failures import FailureTracker
from clients.worker.hosted_clients import HostedClients
from clients.worker.round_training import LocalUpdates
from clients.worker.worker import Worker
from ledger.actors.actions import ActorContext
from ledger.actors.journal import FileJournal
from ledger.chain.memory import memory_ledger
from ledger.protocol.encoding import vector_bytes
from ledger.protocol.ledger_state import LedgerStage, RoundDecided
from ledger.protocol.payload_forms import PAYLOAD_FORMS
from ledger.protocol.types import ClientId
from ledger.storage.blobs import FolderBlobs
from ledger.storage.folder import FolderObjects
from ledger.storage.mailbox import Mailbox
from tests.clients.worker.together import QuickDisk, hosted_by
from tests.seeds import first_that_shows
from tests.support.executors import ImmediateExecutor

if TYPE_CHECKING:
    from pathlib import Path

    from clients.configuration.schema import Configuration
    from clients.training.port import Engine
    from ledger.chain.memory import MemoryLedger
    from ledger.chain.round_ledger import RoundHistory

SETTINGS = ("protocol.rounds=2", "protocol.beacon=none")


def simulated(configuration: Configuration, folder: Path) -> list[RoundDecided]:
    """Return the rounds of a run in one process."""
    with open_memory_run(folder, "run", configuration) as run:
        run.go_on(lambda _: None)
        return _decided(run.ledger)


def test_workers_decide_what_the_simulation_decides(tmp_path: Path) -> None:
    """Compare a run of workers who commit in the simulation's order and change no view.

    Who sends a decision is the first to see the next round, and so the first to commit in it. Here
    each transaction takes a second, so that one before a vote may make that vote late for its view.
    """

    def play(seed: int) -> tuple[Configuration, MemoryLedger]:
        configuration = load("smoke", settings=(*SETTINGS, f"seed={seed}"))
        return configuration, _worked(configuration, tmp_path / str(seed), workers=3)

    def is_comparable(played: tuple[Configuration, MemoryLedger]) -> bool:
        rounds = ([mined.client for mined in played[1].commitments(t)] for t in (1, 2))
        views = {event.views for event in _decided(played[1])}
        return all(clients == sorted(clients) for clients in rounds) and views == {(0, 0)}

    configuration, ledger = first_that_shows(is_comparable, play, first=6)
    expected = simulated(configuration, tmp_path)
    assert len(expected) == 2
    for ours, theirs in zip(_decided(ledger), expected, strict=True):
        assert ours.next_seed == theirs.next_seed
        assert ours.ranking == theirs.ranking
        assert ours.accepted == theirs.accepted
        assert ours.next_committee == theirs.next_committee
        assert ours.model == theirs.model
        # The order of commitments is fixed here, so that the bases are one, and all rests on it.
        assert ours.base == theirs.base
        assert ours.opening() == theirs.opening()
        # Who replied in time is no part of the result: with that set equal, so are the heads.
        assert replace(ours, signers=theirs.signers, head=theirs.head) == theirs


@pytest.mark.parametrize("form", PAYLOAD_FORMS)
def test_one_worker_with_all_clients_has_the_simulation_s_heads(tmp_path: Path, form: str) -> None:
    configuration = load("smoke", settings=(*SETTINGS, "seed=7", f"protocol.payload={form}"))
    found = _decided(_worked(configuration, tmp_path / "worked", workers=1))
    assert found == simulated(configuration, tmp_path)


def _worked(configuration: Configuration, folder: Path, workers: int) -> MemoryLedger:
    """Return the ledger of a run that separate workers have played to its end."""
    population = populate(configuration)
    configuration = with_training_path(configuration, population)
    document = run_document(configuration, population)
    folder.mkdir()
    ledger = memory_ledger(document)
    blobs = FolderBlobs(folder / "blobs", disk=QuickDisk())
    blobs.put(vector_bytes(population.initial))

    def engine(rows: int) -> Engine:
        assert configuration.training.path != "auto"
        return open_engine(
            population.model,
            population.data,
            configuration.local_training(),
            device="cpu",
            workers=1,
            path=configuration.training.path,
            sets={},
            rows=rows,
            form=document.parameters.payload_form,
        )

    running = []
    for number, clients in enumerate(hosted_by(workers, len(population.signers))):
        context = ActorContext(
            parameters=document.parameters,
            layout=document.layout,
            domain=ledger.domain,
            ledger=ledger,
            blobs=FolderBlobs(folder / "blobs", disk=QuickDisk()),
            mailbox=Mailbox(FolderObjects(folder / "mail", disk=QuickDisk())),
            journal=FileJournal(folder / f"{number}.sqlite"),
        )
        hosting = HostedClients(
            signers={ClientId(client): population.signers[client] for client in clients},
            engine=engine(len(clients)),
            own=LocalUpdates(folder / str(number), disk=QuickDisk()),
            training=ImmediateExecutor(),
            sending=ImmediateExecutor(),
            environment=environment_here("plain", "cpu"),
        )
        running.append((context, Worker(context, hosting, FailureTracker(Random(number)))))
    now = float(ledger.newest_block().timestamp)
    while ledger.state().stage is not LedgerStage.FINISHED:
        for _, worker in running:
            worker.step(Moment(now, now))
        now = max(now + 1, float(ledger.newest_block().timestamp))
    for context, worker in running:
        context.journal.close()  # type: ignore[attr-defined]
        worker.hosting.engine.close()
    return ledger


def _decided(ledger: RoundHistory) -> list[RoundDecided]:
    ends = [recorded.event for recorded in ledger.outcomes(limit=100, descending=False)]
    return [event for event in ends if isinstance(event, RoundDecided)]
