"""Workers side by side in one process, each stepped by hand: a ledger, a mailbox and time for all.

The workers are the product's, whole. What lies between them loses, delays and breaks off as a test
tells it to; each keeps a folder and a journal of its own, which outlive it as a disk would.
Keys are derived from a sentence: PUBLIC TEST KEYS, worth nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Self

import numpy as np

from clients.training.engine_factory import environment_here
from clients.training.port import Engine, Evaluation, PendingEvaluation, TrainedUpdate, TrainingJob
from clients.worker.background import FailureTracker, LocalUpdates, Moment
from clients.worker.worker import HostedClients, Worker
from ledger.actors.steps import ActorContext
from ledger.io.home import Disk
from ledger.protocol.documents.envelope import Envelope, EnvelopeKind
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.encoding import vector_bytes
from ledger.protocol.errors import BlobUnreachableError
from ledger.protocol.ledger_state import LedgerStage, RoundAbandoned, RoundDecided
from ledger.protocol.parameters import Parameters
from ledger.protocol.payloads import Payload
from ledger.protocol.rules.distance import plain_distances
from ledger.protocol.training_replay import TrainingEnvironment
from ledger.protocol.types import ClientId, Digest, Domain, Vote, VoteKind
from ledger.storage.blobs import MAX_BLOB_BYTES, MemoryBlobs
from ledger.storage.mailbox import Mailbox, MemoryMailbox
from tests.actors.branching import BranchingLedger
from tests.actors.support import (
    LAYOUT,
    PARAMETERS,
    PowerCutJournal,
    Statements,
    initial_model,
    registry_of,
    signers,
)
from tests.federation.worker_faults import NO_FAULTS, WorkerFaults
from tests.support.executors import ImmediateExecutor

ROOMY = replace(PARAMETERS, commit_blocks=20, deadline_blocks=120)
"""A window in which each of fourteen workers can have a transaction, and so a block, of its own."""


class Killed(BaseException):
    """What ends a worker in the middle of a step, as a killed process ends there."""


class QuickDisk(Disk):
    def sync_files(self, paths: Collection[Path]) -> None:
        """Nothing has to be done."""

    def sync_folder(self, folder: Path) -> None:
        """Nothing has to be done."""


class DrawnEngine(Engine):
    distances = staticmethod(plain_distances)

    def __init__(self) -> None:
        self.trained: dict[int, int] = {}

    def train(
        self, start: np.ndarray[tuple[int], np.dtype[np.float32]], jobs: Sequence[TrainingJob]
    ) -> list[TrainedUpdate]:
        updates = []
        for job in jobs:
            self.trained[job.client] = self.trained.get(job.client, 0) + 1
            own = np.random.default_rng(list(job.seed)).normal(size=start.shape)
            update = (start + 1 + 0.2 * own).astype("<f4")
            updates.append(TrainedUpdate(job.client, Payload.of(update.tobytes())))
        return updates

    def evaluate(
        self, vector: np.ndarray[tuple[int], np.dtype[np.float32]], sets: Sequence[str]
    ) -> PendingEvaluation:
        assert vector.shape == (PARAMETERS.dimension,)
        return lambda: tuple(Evaluation(3, 2.0, 4) for _ in sets)

    def close(self) -> None:
        """Nothing is open."""


class Mail(Mailbox):
    """One worker's way to the mailbox of all: some of it late, and it may break off.

    Attributes:
        held: envelopes of others that it does not get before they are released.
        left: envelopes that it still puts before it is killed; None for all.
        fails: kinds of which no listing is answered.
    """

    is_shared = True

    def __init__(
        self,
        board: MemoryMailbox,
        statements: dict[ClientId, Statements],
        liars: Collection[ClientId],
    ) -> None:
        self._board = board
        self._statements = statements
        self._liars = liars
        self._delivered: dict[tuple[int, EnvelopeKind], list[Envelope]] = {}
        self.held = False
        self.left: int | None = None
        self.lost = 0
        self.loses: frozenset[EnvelopeKind] = frozenset()
        self.fails: frozenset[EnvelopeKind] = frozenset()

    def put(self, envelope: Envelope) -> bool:
        if self.left == 0:
            raise Killed
        if self.left is not None:
            self.left -= 1
        # Whatever has left has been said, though nobody may ever get it.
        if envelope.client not in self._liars:
            self._statements.setdefault(envelope.client, Statements({}, {})).hear(envelope)
        if self.lost or envelope.kind in self.loses:
            self.lost = max(0, self.lost - 1)
            return True
        return self._board.put(envelope)

    def listed(
        self, domain: Domain, round_number: int, kind: EnvelopeKind, start: int = 0
    ) -> Sequence[Envelope]:
        if kind in self.fails:
            raise OSError("the mailbox does not answer")
        got = self._delivered.setdefault((round_number, kind), [])
        if not self.held:
            got += self._board.listed(domain, round_number, kind, len(got))
        return got[start:]

    def forget(self, domain: Domain, before_round: int) -> None:
        """Others may still read."""


class UncertainBlobs(MemoryBlobs):
    """A store that may not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.is_down = False

    def get(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> bytes:
        if self.is_down:
            raise BlobUnreachableError("the store does not answer")
        return super().get(digest, limit)


@dataclass
class Place:
    """One owner's machine: what is on its disk outlives the worker that runs on it."""

    clients: tuple[ClientId, ...]
    own: Path
    journal: PowerCutJournal
    mail: Mail
    engine: DrawnEngine = field(default_factory=DrawnEngine)
    skew: float = 0.0
    faults: WorkerFaults = NO_FAULTS
    worker: Worker | None = None
    environment: TrainingEnvironment = field(
        default_factory=lambda: environment_here("plain", "cpu")
    )


class Together:
    def __init__(
        self,
        folder: Path,
        hosted: Iterable[Iterable[int]],
        parameters: Parameters = ROOMY,
        *,
        confirmations: int = 0,
    ) -> None:
        self.blobs = UncertainBlobs()
        model = self.blobs.put(vector_bytes(initial_model()))
        document = RunDocument(parameters, registry_of(parameters), model, LAYOUT, {})
        self.parameters = parameters
        self.ledger = BranchingLedger.of(document)
        self.now = float(self.ledger.newest_block().timestamp)
        self.board = MemoryMailbox()
        self.statements: dict[ClientId, Statements] = {}
        self.liars: set[ClientId] = set()
        self._confirmations = confirmations
        self.places = [
            Place(
                tuple(map(ClientId, clients)),
                folder / str(number),
                PowerCutJournal(),
                Mail(self.board, self.statements, self.liars),
            )
            for number, clients in enumerate(hosted)
        ]

    def worker(self, number: int) -> Worker:
        place = self.places[number]
        if place.worker is None:
            context = ActorContext(
                parameters=self.parameters,
                domain=self.ledger.domain,
                ledger=self.ledger,
                blobs=self.blobs,
                mailbox=place.mail,
                journal=place.journal,
                finality_blocks=self._confirmations,
            )
            hosting = HostedClients(
                signers={c: signers(self.parameters.clients)[c] for c in place.clients},
                engine=place.engine,
                own=LocalUpdates(place.own, place.environment.digest, disk=QuickDisk()),
                training=ImmediateExecutor(),
                sending=ImmediateExecutor(),
                environment=place.environment,
                behaviour=place.faults,
            )
            place.worker = Worker(context, hosting, FailureTracker(Random(number)))
        return place.worker

    def corrupt(self, number: int, faults: WorkerFaults) -> None:
        self.places[number].faults = faults
        self.liars.update(self.places[number].clients)

    def step(self, number: int, left: int | None = None) -> float | None:
        """Let one worker step; it dies after so many envelopes, None for none of that."""
        place = self.places[number]
        place.mail.left = left
        try:
            return self.worker(number).step(Moment(self.now + place.skew, self.now))
        except Killed:
            self.restart(number)
            return None
        finally:
            place.mail.left = None

    def restart(self, number: int) -> None:
        """Kill a worker; the next step begins another on what the disk holds."""
        self.places[number].worker = None
        self.places[number].journal.cut()

    def pass_time(self, seconds: float = 1.0) -> None:
        """Let time go on, and a block be made every second."""
        self.now += seconds
        self.ledger.mine(max(0, int(self.now) - self.ledger.newest_block().number))
        # Transactions take blocks too, so that the chain's time may be ahead of the machines'.
        self.now = max(self.now, float(self.ledger.newest_block().timestamp))

    def play(self, most_steps: int = 2000, places: Sequence[int] | None = None) -> Self:
        everybody = range(len(self.places)) if places is None else places
        for _ in range(most_steps):
            for number in everybody:
                self.step(number)
            if self.ledger.state().stage is LedgerStage.FINISHED:
                break
            self.pass_time()
        for number in everybody:
            self.step(number)
        return self

    def requests_of(self, client: ClientId) -> list[Vote]:
        said = self.statements.get(client, Statements({}, {}))
        return [vote for slot, vote in said.votes.items() if slot.kind is VoteKind.REQUEST]

    @property
    def ends(self) -> list[RoundDecided | RoundAbandoned]:
        found = self.ledger.outcomes(limit=1000, descending=False)
        return [one.event for one in found if isinstance(one.event, RoundDecided | RoundAbandoned)]

    @property
    def decided(self) -> list[RoundDecided]:
        return [event for event in self.ends if isinstance(event, RoundDecided)]


def hosted_by(workers: int, clients: int = PARAMETERS.clients) -> list[tuple[int, ...]]:
    return [tuple(part.tolist()) for part in np.array_split(range(clients), workers)]
