"""Training of a worker's clients in a round, and an engine that is replaced after a failure.

An engine of several processes ends all of them if one fails. A worker runs unattended for months:
a process that the system kills for its memory must not cost its clients all further rounds. If a
model fails on the samples of one client, the others are trained without it.
"""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from clients.training.port import (
    Engine,
    PendingEvaluation,
    TrainedUpdate,
    TrainingError,
    TrainingJob,
)
from ledger.io.home import DISK, Disk, read_file
from ledger.protocol import canonical
from ledger.protocol.encoding import sha256, vector_bytes
from ledger.protocol.inputs import training_seed
from ledger.protocol.payloads import Payload
from ledger.protocol.types import NO_DIGEST, ClientId, Digest, Domain

if TYPE_CHECKING:
    from clients.models.model import ParameterVector


T = TypeVar("T")


class RestartingEngine(Engine):
    """Delegates to an engine; not safe for several threads, except `distances`."""

    def __init__(self, open_engine: Callable[[], Engine]) -> None:
        self._open = open_engine
        self._engine = open_engine()
        self._has_failed = self._is_closed = False
        self.distances = self._engine.distances

    def train(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> list[TrainedUpdate]:
        return self._tried(lambda engine: engine.train(start, jobs))

    def evaluate(self, vector: ParameterVector, sets: Sequence[str]) -> PendingEvaluation:
        return self._tried(lambda engine: engine.evaluate(vector, sets))

    def interrupt(self) -> None:
        """End the engine's processes, so that training fails; call from any other thread.

        The training thread's owner closes the engine: two threads cannot close it at once.
        """
        self._is_closed = True
        for process in getattr(self._engine, "processes", ()):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)

    def close(self) -> None:
        self._is_closed = True
        self._engine.close()

    def _tried(self, task: Callable[[Engine], T]) -> T:
        """Return a task's result; after a failure the next one goes to a new engine."""
        if self._is_closed:
            raise TrainingError("the worker ends: nothing is trained any more")
        if self._has_failed:
            self._engine.close()
            self._engine = self._open()
            self._has_failed = False
        try:
            return task(self._engine)
        except TrainingError:
            self._has_failed = True
            raise


_NAME = re.compile(
    r"([0-9]{1,20})-([0-9]{1,10})-([0-9a-f]{64})-([0-9a-f]{64})(?:-([0-9a-f]{64}))?\.update"
)

TrainingResult = tuple[list[TrainedUpdate], TrainingError | None]
"""The updates that there are, and why there are no more of them."""

MOST_FAILURES = 4
"""Failed clients in one attempt after which the others wait for the next one."""


class LocalUpdates:
    """Durable updates by round, client and origin, written before their commitments are sent.

    Between its commitment and the closing block only the client has its update: a process that is
    killed must not lose it. Each file name has the update's origin and digest, so that a damaged
    update is trained again, and the environment in which it was trained.
    """

    def __init__(self, folder: Path, environment: Digest = NO_DIGEST, *, disk: Disk = DISK) -> None:
        """Use a folder of this worker alone, in a process that trains in this environment."""
        self._folder = folder
        self._environment = environment
        self._disk = disk

    def find(
        self, round_number: int, client: ClientId, origin: Digest, limit: int
    ) -> Payload | None:
        """Return a stored update of at most `limit` bytes; None if there is no intact one."""
        prefix = f"{round_number}-{client}-{origin.hex()}-"
        for path, match in self._kept():
            if not path.name.startswith(prefix) or path.stat().st_size > limit:
                continue
            payload = Payload.of(read_file(path, limit))
            if payload.digest.hex() == match[4]:
                return payload
        return None

    def is_of_this_environment(self, round_number: int, client: ClientId) -> bool:
        """Return whether a stored update was trained in the environment of this process."""
        named = (str(round_number), str(client), self._environment.hex())
        return any(match.group(1, 2, 5) == named for _, match in self._kept())

    def keep(self, round_number: int, origin: Digest, updates: Mapping[ClientId, Payload]) -> None:
        """Store updates by client, durably."""
        paths = []
        for client, update in updates.items():
            name = f"{round_number}-{client}-{origin.hex()}-{update.digest.hex()}"
            paths.append(self._folder / f"{name}-{self._environment.hex()}.update")
            self._disk.write_whole(paths[-1], update.data, durable=False)
        if paths:
            self._disk.sync(paths)

    def forget(self, before_round: int) -> None:
        for path, match in self._kept():
            if int(match[1]) < before_round:
                self._disk.remove(path)

    def _kept(self) -> list[tuple[Path, re.Match[str]]]:
        paths = list(self._folder.iterdir()) if self._folder.is_dir() else []
        return [(path, match) for path in paths if (match := _NAME.fullmatch(path.name))]


@dataclass(frozen=True, eq=False)
class TrainingAssignment:
    """The training of a worker's active clients, ascending, from the model w_t of a round."""

    domain: Domain
    round: int
    seed: Digest
    model: NDArray[np.float32]
    clients: tuple[ClientId, ...]
    payload_bytes: int

    @cached_property
    def origin(self) -> Digest:
        """The digest of everything that an update depends on, except data and code."""
        where = [self.domain.chain_id, self.domain.contract, self.domain.salt, self.round]
        came_from = [*where, self.seed, sha256(vector_bytes(self.model))]
        return sha256(canonical.encode({"origin": came_from}))


class RoundTraining:
    """Trains what is assigned, unless its updates are stored."""

    def __init__(self, engine: Engine, own: LocalUpdates, executor: Executor) -> None:
        """Use an engine in an executor of one thread, and a store of updates."""
        self._engine = engine
        self._own = own
        self._executor = executor
        self._about: TrainingAssignment | None = None
        self.held: dict[ClientId, Payload] = {}
        self._running: tuple[TrainingAssignment, Future[TrainingResult]] | None = None
        self._failures: Counter[int] = Counter()

    @property
    def is_busy(self) -> bool:
        return self._running is not None and not self._running[1].done()

    def updates(self, assigned: TrainingAssignment) -> Mapping[ClientId, Payload] | None:
        """Return the durable update of every assigned client; None while they are being trained."""
        if assigned is not self._about:
            self._begin(assigned)
        missing = [client for client in assigned.clients if client not in self.held]
        if not missing:
            return self.held
        if self._running is None:
            jobs = [TrainingJob(int(c), training_seed(assigned.seed, c)) for c in missing]
            future = self._executor.submit(self._trained, assigned.model, jobs)
            self._running = assigned, future
        running_assignment, running = self._running
        if not running.done():
            return None
        if running_assignment is not assigned or running.exception() is not None:
            self._running = None  # of a round that is over, or to be tried again
        if running_assignment is not assigned:
            return self.updates(assigned)
        trained, error = running.result()
        by_client = {int(client): client for client in assigned.clients}
        updates = {by_client[update.client]: update.payload for update in trained}
        self._own.keep(assigned.round, assigned.origin, updates)
        self.held |= updates
        self._running = None
        if error is not None:
            raise error
        return self.held

    def forget(self) -> None:
        """Release the updates: the engine reuses their memory."""
        self._about, self.held = None, {}

    def _begin(self, assigned: TrainingAssignment) -> None:
        number, limit = assigned.round, assigned.payload_bytes
        stored = {c: self._own.find(number, c, assigned.origin, limit) for c in assigned.clients}
        self.held = {client: update for client, update in stored.items() if update is not None}
        self._own.forget(number)
        self._about = assigned

    def _trained(self, model: NDArray[np.float32], jobs: list[TrainingJob]) -> TrainingResult:
        """Train all clients together; after a failure, one by one."""
        alone = [job for job in jobs if self._failures[job.client]]
        batch = [job for job in jobs if not self._failures[job.client]]
        updates: list[TrainedUpdate] = []
        failed: TrainingError | None = None
        try:
            updates = self._engine.train(model, batch) if batch else []
        except TrainingError as error:
            alone, failed = [*batch, *alone], error
        if alone:
            # Memory of their own: the next call of the engine overwrites what it has returned.
            updates = [update.copy() for update in updates]
        left = MOST_FAILURES
        for job in sorted(alone, key=lambda job: self._failures[job.client]):
            try:
                (update,) = self._engine.train(model, [job])
            except TrainingError as error:
                failed, left = error, left - 1
                self._failures[job.client] += 1
                if not left:
                    break
            else:
                self._failures.pop(job.client, None)
                updates.append(update.copy())
        # If all have been trained alone after a failure of the batch, nothing is tried again.
        return updates, failed if len(updates) < len(jobs) else None
