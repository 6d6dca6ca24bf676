"""Workers side by side: they decide what a simulation decides, however they are interleaved."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clients.configuration.loading import load
from clients.configuration.schema import Configuration
from clients.runs.open_run import open_memory_run
from clients.runs.population import populate, run_document, with_training_path
from clients.training.engine_factory import environment_here, open_engine
from clients.training.port import Engine
from clients.worker.background import FailureTracker, LocalUpdates, Moment
from clients.worker.worker import HostedClients, Worker
from ledger.actors.journal import FileJournal
from ledger.actors.steps import ActorContext
from ledger.chain.memory import MemoryLedger, memory_ledger
from ledger.chain.round_ledger import RoundHistory
from ledger.protocol.documents.envelope import EnvelopeKind
from ledger.protocol.encoding import vector_bytes
from ledger.protocol.ledger_state import LedgerStage, RoundDecided
from ledger.protocol.payloads import PAYLOAD_FORMS
from ledger.protocol.types import ClientId
from ledger.storage.blobs import FolderBlobs, FolderObjects
from ledger.storage.mailbox import Mailbox
from tests.clients.worker.together import ROOMY, QuickDisk, Together, hosted_by
from tests.faults import times
from tests.seeds import first_that_shows
from tests.support.executors import ImmediateExecutor

SETTINGS = ("protocol.rounds=2", "protocol.beacon=none")


def simulated(configuration: Configuration, folder: Path) -> list[RoundDecided]:
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
            configuration.training,
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


WORKERS = 5
SHORT = replace(ROOMY, rounds=2)


@dataclass(frozen=True)
class Deed:
    """What one worker does in a turn.

    Attributes:
        left: it dies after so many envelopes; None to live on.
        restarts: it is killed between two steps, and begun again.
    """

    sleeps: bool = False
    left: int | None = None
    lost: int = 0
    held: bool = False
    restarts: bool = False
    loses: frozenset[EnvelopeKind] = frozenset()


Script = list[tuple[list[Deed], float, bool]]

deeds = st.one_of(
    st.just(Deed()),
    st.just(Deed()),
    st.just(Deed(sleeps=True)),
    st.integers(0, 6).map(lambda left: Deed(left=left)),
    st.integers(1, 8).map(lambda lost: Deed(lost=lost)),
    st.integers(1, 8).map(lambda lost: Deed(lost=lost, restarts=True)),
    st.just(Deed(held=True)),
    st.just(Deed(held=True, restarts=True)),
    st.just(Deed(restarts=True)),
)
turns = st.tuples(
    st.lists(deeds, min_size=WORKERS, max_size=WORKERS),
    st.sampled_from([0.0, 1.0, 2.0, 4.0]),
    st.booleans(),
)
"""What each worker does, how many seconds pass, and whether the store answers late."""


def turn(together: Together, does: list[Deed], seconds: float, is_down: bool) -> None:
    together.blobs.is_down = is_down and seconds > 2
    for number, deed in enumerate(does):
        place = together.places[number]
        place.mail.held = deed.held
        place.mail.lost = deed.lost
        place.mail.loses = deed.loses
        if deed.restarts:
            together.restart(number)
        if not deed.sleeps:
            together.step(number, deed.left)
    together.pass_time(seconds)


REQUESTS, VECTORS = EnvelopeKind.REQUEST, EnvelopeKind.SCORES


def vector_after_request(slow: int) -> Script:
    """Return how whoever has asked once and begins anew holds more than when it asked.

    Nobody gets the request, and the vectors of the slow worker come after it: what a primary would
    ask for now is another record, in the same view.
    """
    everybody = Deed(loses=frozenset({REQUESTS}))
    before = [everybody] * WORKERS
    before[slow] = Deed(loses=frozenset({REQUESTS, VECTORS}))
    after = [replace(everybody, restarts=True)] * WORKERS
    return [(before, 1.0, False)] * 13 + [(after, 0.5, False)] * 4


CALM: dict[str, Any] = {"calm": 1, "skews": [0.0] * WORKERS, "confirmations": 0, "frozen": None}


@settings(max_examples=times(3, 400))
@example(script=vector_after_request(0), **CALM)
@example(script=vector_after_request(1), **CALM)
@given(
    script=st.lists(turns, max_size=40),
    calm=st.integers(0, 6),
    skews=st.lists(st.sampled_from([-4.0, 0.0, 0.0, 4.0]), min_size=WORKERS, max_size=WORKERS),
    confirmations=st.sampled_from([0, 0, 2]),
    frozen=st.none() | st.integers(0, WORKERS - 1),
)
def test_keys_stay_consistent_and_the_run_continues_whatever_happens(
    script: Script, calm: int, skews: list[float], confirmations: int, frozen: int | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        together = Together(Path(folder), hosted_by(WORKERS), SHORT, confirmations=confirmations)
        for place, skew in zip(together.places, skews, strict=True):
            place.skew = skew
        for _ in range(calm):
            turn(together, [Deed()] * WORKERS, 1.0, False)
        for does, seconds, is_down in script:
            # Two statements for one place are refused where they leave.
            turn(together, does, seconds, is_down)
        together.blobs.is_down = False
        for place in together.places:
            place.mail.held, place.mail.lost, place.mail.loses = False, 0, frozenset()
        together.play(places=[number for number in range(WORKERS) if number != frozen])
        assert together.ledger.state().stage is LedgerStage.FINISHED, "the run stands still"
        assert [event.round for event in together.ends] == [1, 2]
        assert not together.ledger.bans(), "somebody honest was banned"
        models = [together.ledger.deployment().model]
        models += [event.model for event in together.ends if isinstance(event, RoundDecided)]
        assert len(set(models)) == len(models), "a round was decided twice, or on nothing"
