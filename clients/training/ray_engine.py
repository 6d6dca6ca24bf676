"""An engine of Ray actors, for more than one machine (extra `ray`).

Actors take chunks of clients. The model goes to each node once per round through Ray's object
store; updates return the same way and are hashed on arrival. The work of a lost node is repeated by
others: an update has the same bytes on any actor.
"""

from __future__ import annotations

import math
import re
import socket
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from clients.models.model import ParameterVector
from clients.training.jobs import (
    Evaluator,
    JobQueue,
    as_training_error,
    blocks_of_sets,
    shares,
    totals_by_set,
    trainer_of,
)
from clients.training.port import (
    Engine,
    Evaluation,
    PendingEvaluation,
    TrainedUpdate,
    TrainingError,
    TrainingJob,
    UpdateTrainer,
    Workload,
)
from ledger.io.extras import require_extra
from ledger.protocol.errors import CmflError, ConfigurationError
from ledger.protocol.rules.distance import Distances

LOCAL = "local"  # address of a cluster that starts and ends with its user
_ADDRESS = re.compile(r"(?:ray://)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):(?P<port>[0-9]{1,5})")


def require_reachable(address: str) -> None:
    """Reject a cluster (HOST:PORT, "auto", "local") out of reach: Ray would try for minutes."""
    require_extra("ray", "machine.engine = ray needs")
    if address in {LOCAL, "auto"}:
        return
    match = _ADDRESS.fullmatch(address)
    if match is None or not 1 <= int(match["port"]) < 2**16:
        raise ConfigurationError(
            f"machine.ray_address = {address}: must be HOST:PORT of a cluster's head, auto or local"
        )
    try:
        host_and_port = match["host"].strip("[]"), int(match["port"])
        socket.create_connection(host_and_port, timeout=10).close()
    except (OSError, UnicodeError) as error:  # an invalid host name cannot be encoded
        raise ConfigurationError(
            f"machine.ray_address = {address}: no cluster responds ({error})"
        ) from error


MOST_LOSSES = 100  # lost actors after which a call fails: the cause is systematic
_START_SECONDS = 120.0


class RayEngine(Engine):
    """Trains and evaluates on a Ray cluster; each node needs a user's code and files."""

    def __init__(
        self, workload: Workload, workers: int, distances: Distances, address: str = "local"
    ) -> None:
        self.distances = distances
        self._actors: list[Any] = []
        self._starting: dict[Any, Any] = {}
        require_extra("ray", "machine.engine = ray needs")
        import ray  # noqa: PLC0415 - heavy, and an extra

        self._ray: Any = ray
        self._owns_cluster = not self._ray.is_initialized()
        if self._owns_cluster:
            try:
                self._ray.init(address=address, log_to_driver=False, include_dashboard=False)
            except (ConnectionError, ValueError, RuntimeError) as error:
                message = str(error).splitlines()[0] if str(error) else type(error).__name__
                raise ConfigurationError(
                    f"machine.ray_address = {address}: {message:.300}"
                ) from error
        try:
            cards = self._ray.cluster_resources().get("GPU", 0)
            device, share = actor_device(workload.device, workers, cards)
        except ConfigurationError:
            self.close()
            raise
        self._workload = replace(workload, device=device)
        self._shared = self._ray.put(self._workload)
        self._size = workers
        self._actor = self._ray.remote(num_cpus=1, num_gpus=share, max_restarts=0)(_Actor)

    def train(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> list[TrainedUpdate]:
        self._workload.require_jobs(start, jobs)
        queue = JobQueue(self._workload.costs(jobs), self._size, chunk=1)
        chunks = list(iter(queue.take, []))
        sent = self._ray.put(start)
        payloads: dict[int, NDArray[np.uint8]] = {}
        tasks = [_remote("train", sent, [jobs[i] for i in chunk]) for chunk in chunks]
        for chunk, updates in zip(chunks, self._run(tasks), strict=True):
            payloads.update(zip(chunk, updates, strict=True))
        form, dimension = self._workload.form, self._workload.model.dimension
        return [
            TrainedUpdate.decoded(job.client, payloads[place].data.toreadonly(), form, dimension)
            for place, job in enumerate(jobs)
        ]

    def evaluate(self, vector: ParameterVector, sets: Sequence[str]) -> PendingEvaluation:
        self._workload.require_sets(vector, sets)
        blocks = blocks_of_sets(self._workload, sets)
        sent, names = self._ray.put(vector), tuple(sets)
        parts = [part for part in shares(blocks, self._size) if part.start < part.stop]
        tasks = [_remote("evaluate", sent, names, part) for part in parts]

        def result() -> tuple[Evaluation, ...]:
            evaluations = [part for parts in self._run(tasks) for part in parts]
            return totals_by_set(len(names), blocks, evaluations)

        return result

    def close(self) -> None:
        for actor in [*self._actors, *self._starting.values()]:
            self._ray.kill(actor)
        self._actors, self._starting = [], {}
        if self._owns_cluster and self._ray.is_initialized():
            self._ray.shutdown()

    def _run(self, tasks: Sequence[Callable[[Any], Any]]) -> list[Any]:
        """Return the result of each task; other actors repeat the tasks of lost ones."""
        queue = deque(range(len(tasks)))
        results: dict[int, Any] = {}
        running: dict[Any, tuple[int, Any]] = {}
        losses = 0
        self._start_missing()
        free = list(self._actors)
        while len(results) < len(tasks):
            while queue and free:
                actor, place = free.pop(), queue.popleft()
                running[tasks[place](actor)] = (place, actor)
            # The first answer of a working or a starting actor.
            timeout = None if running else _START_SECONDS
            ready, _ = self._ray.wait([*running, *self._starting], num_returns=1, timeout=timeout)
            if not ready:
                raise TrainingError(
                    f"no actor of the cluster started in {_START_SECONDS:.0f} s; it has no "
                    "free core"
                )
            answer = ready[0]
            if answer in self._starting:
                free += self._joined(answer)
                continue
            place, actor = running.pop(answer)
            try:
                results[place] = self._ray.get(answer)
            except self._ray.exceptions.RayTaskError as error:
                _fail(error)
            except self._ray.exceptions.RayError as error:
                losses += 1
                if losses > MOST_LOSSES:
                    raise TrainingError(f"{losses} actors of the cluster were lost") from error
                queue.appendleft(place)
                self._actors.remove(actor)
                self._start_missing()
            else:
                free.append(actor)
        return [results[place] for place in range(len(tasks))]

    def _start_missing(self) -> None:
        """Request the missing actors; on a full cluster some may never start."""
        missing = self._size - len(self._actors) - len(self._starting)
        for _ in range(missing):
            actor = self._actor.remote(self._shared)
            self._starting[actor.ready.remote()] = actor

    def _joined(self, answer: Any) -> list[Any]:
        actor = self._starting.pop(answer)
        try:
            self._ray.get(answer)
        except self._ray.exceptions.RayTaskError as error:
            _fail(error)
        except self._ray.exceptions.RayError as error:
            if not self._actors:
                raise TrainingError(f"no actor of the cluster started: {error!s:.300}") from error
            return []
        self._actors.append(actor)
        return [actor]


def actor_device(name: str, actors: int, cards: float) -> tuple[str, float]:
    """Return the device of all actors of a cluster, and the share of a card that each asks for."""
    if name == "cpu" or (name == "auto" and cards < 1):
        return "cpu", 0.0
    if name not in {"auto", "cuda"}:
        raise ConfigurationError(
            f"machine.device = {name}: Ray assigns the cards of a cluster; use cuda"
        )
    if cards < 1:
        raise ConfigurationError("machine.device = cuda: the cluster has no GPU")
    # Ray knows whole cards, and equal shares of one.
    return "cuda", 1 / math.ceil(actors / cards)


def _remote(method: str, *arguments: Any) -> Callable[[Any], Any]:
    return lambda actor: getattr(actor, method).remote(*arguments)


class _Actor:
    """A Ray actor on one core; Ray shows it the card that it was given as the only one."""

    _trainer: UpdateTrainer
    _evaluator: Evaluator

    def __init__(self, workload: Workload) -> None:
        self._workload = workload

    def ready(self) -> None:
        with as_training_error():
            self._trainer = trainer_of(self._workload)
            self._evaluator = Evaluator(self._workload)

    def train(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> list[NDArray[np.uint8]]:
        rows = np.empty((len(jobs), self._workload.model.dimension), dtype="<f4")
        with as_training_error():
            self._trainer.train(start, jobs, list(rows))
        return [np.frombuffer(self._workload.form.encode(row), np.uint8) for row in rows]

    def evaluate(
        self, vector: ParameterVector, sets: Sequence[str], chosen: slice
    ) -> list[Evaluation]:
        with as_training_error():
            return self._evaluator.parts(vector, sets, chosen)


def _fail(error: Any) -> NoReturn:
    cause = error.cause
    message = (
        str(cause) if isinstance(cause, CmflError) else f"{type(cause).__name__}: {cause!s:.300}"
    )
    raise TrainingError(f"an actor of the cluster failed: {message}") from error
