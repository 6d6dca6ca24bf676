"""The training of a worker's clients: once a round, beside the votes, kept before it is told.

Training begins when a round opens and matters until its window closes. Whoever takes longer has no
update in the round; its clients on the committee vote all the same, since nothing waits here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clients.engine.port import TrainingJob
from ledger.protocol import canonical
from ledger.protocol.encoding import sha256, vector_bytes
from ledger.protocol.sampling import training_seed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Executor, Future

    import numpy as np
    from numpy.typing import NDArray

    from clients.engine.port import Engine, TrainedUpdate
    from clients.worker.payloads import OwnPayloads
    from ledger.protocol.payload import Payload
    from ledger.protocol.types import ClientId, Digest, Domain


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """What a worker's clients train in a round.

    Attributes:
        domain: the contract on its chain.
        round: t.
        seed: seed_t.
        model: w_t, shape (d,).
        clients: those of the worker that are active, ascending.
    """

    domain: Domain
    round: int
    seed: Digest
    model: NDArray[np.float32]
    clients: tuple[ClientId, ...]

    def origin(self) -> Digest:
        """Return what commits to all that an update follows from beside data and code."""
        where = [self.domain.chain_id, self.domain.contract, self.round]
        came_from = [*where, self.seed, sha256(vector_bytes(self.model))]
        return sha256(canonical.encode({"origin": came_from}))


class Training:
    """Trains what is assigned, if it has not been trained before."""

    def __init__(self, engine: Engine, own: OwnPayloads, executor: Executor) -> None:
        """Take up what it trains with.

        Args:
            engine: trains clients, one call at a time.
            own: keeps updates.
            executor: of one thread, in which the engine is called.
        """
        self._engine = engine
        self._own = own
        self._executor = executor
        self._about: Assignment | None = None
        self._origin: Digest | None = None
        self._updates: dict[ClientId, Payload] = {}
        self._running: tuple[Assignment, Future[list[TrainedUpdate]]] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether something is being trained."""
        return self._running is not None and not self._running[1].done()

    def updates(self, assigned: Assignment) -> Mapping[ClientId, Payload] | None:
        """Return the update of every client that is assigned, None while they are being trained.

        What is returned is durable.

        Args:
            assigned: the same object as long as it is the same assignment.

        Raises:
            TrainingError: the model failed.
            OSError: they cannot be kept, so that nobody may hear of them yet.
        """
        if assigned is not self._about:
            self._begin(assigned)
        missing = [client for client in assigned.clients if client not in self._updates]
        if not missing:
            return self._updates
        if self._running is None:
            jobs = [TrainingJob(int(c), training_seed(assigned.seed, c)) for c in missing]
            future = self._executor.submit(self._engine.train, assigned.model, jobs)
            self._running = assigned, future
        about, running = self._running
        if not running.done():
            return None
        if about is not assigned or running.exception() is not None:
            self._running = None  # of a round that is over, or to be tried again
        if about is not assigned:
            return self.updates(assigned)
        self._keep(assigned, running.result())
        return self._updates

    def forget(self) -> None:
        """Let go of the updates: their memory is written to again when clients train again."""
        self._about, self._origin, self._updates = None, None, {}

    def _begin(self, assigned: Assignment) -> None:
        origin = assigned.origin()
        limit = assigned.model.nbytes
        found = {
            client: self._own.find(assigned.round, client, origin, limit)
            for client in assigned.clients
        }
        self._updates = {client: update for client, update in found.items() if update is not None}
        self._own.forget(assigned.round)
        self._about, self._origin = assigned, origin

    def _keep(self, assigned: Assignment, trained: list[TrainedUpdate]) -> None:
        assert self._origin is not None, "an assignment has begun"
        by_client = {int(client): client for client in assigned.clients}
        updates = {by_client[one.client]: one.payload for one in trained}
        self._own.keep(assigned.round, self._origin, updates)
        self._updates |= updates
        self._running = None
