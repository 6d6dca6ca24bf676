"""An engine of Ray actors, for those who outgrow one machine (extra `ray`).

Actors take chunks of clients; the model goes to each node once a round through Ray's object store,
and updates come back the same way, where they are hashed on arrival. What a lost node had not
delivered is done again by the others: an update is the same whoever trains it.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from clients.training.evaluation_blocks import Evaluator, blocks_of, totals_by_set
from clients.training.model_failures import as_training_error
from clients.training.port import Engine, TrainedUpdate, TrainingError
from clients.training.scheduling import JobQueue
from clients.training.update_matrix import payload_of
from ledger.protocol.errors import CmflError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

    from numpy.typing import NDArray

    from clients.models.model import ParameterVector
    from clients.training.evaluation_blocks import EvaluationBlock
    from clients.training.port import Evaluation, TrainingJob, UpdateTrainer
    from clients.training.workload import Workload
    from ledger.protocol.rules.distance.rule import Distances

MOST_LOSSES = 100
"""How many actors one call may lose before it is given up: something ends all of them."""

_START_SECONDS = 120.0


class RayEngine(Engine):
    """Trains and evaluates on a Ray cluster, whose driver is this process.

    Attributes:
        distances: twin of `plain_distances`, computed here.

    Args:
        workload: what it computes with; every node needs the same code and, for a user's model,
            the same file.
        workers: how many actors, one core each.
        distances: computes all distances of a round.
        address: of a running cluster, as `ray start` prints it; "local" for one that begins and
            ends with this engine.

    Raises:
        ConfigurationError: Ray is not installed, or there is no cluster at the address.
    """

    def __init__(
        self, workload: Workload, workers: int, distances: Distances, address: str = "local"
    ) -> None:
        self.distances = distances
        self._workload = workload
        self._ray = _ray()
        self._begun_here = not self._ray.is_initialized()
        if self._begun_here:
            _join(self._ray, address)
        self._shared = self._ray.put(workload)
        self._wanted = workers
        self._actor = self._ray.remote(num_cpus=1, max_restarts=0)(_Actor)
        self._actors: list[Any] = []
        self._starting: dict[Any, Any] = {}

    def train(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> list[TrainedUpdate]:
        """Return the update of every job.

        Args:
            start: the global model w_t, shape (d,).
            jobs: clients to train, no client twice.

        Raises:
            ValueError: a start of another length, an unknown or repeated client, or a seed that
                is not 32 bytes.
            TrainingError: no actor is left and none can be started, or the model failed.
        """
        self._workload.require_jobs(start, jobs)
        left = JobQueue(self._workload.costs(jobs), self._wanted, chunk=1)
        chunks: list[list[int]] = []
        while taken := left.take():
            chunks.append(taken)
        sent = self._ray.put(start)
        rows: dict[int, NDArray[np.float32]] = {}
        tasks = [partial(_train, sent=sent, jobs=[jobs[i] for i in chunk]) for chunk in chunks]
        found = self._done(tasks)
        for chunk, updates in zip(chunks, found, strict=True):
            rows.update(zip(chunk, updates, strict=True))
        return [
            TrainedUpdate(job.client, payload_of(rows[place])) for place, job in enumerate(jobs)
        ]

    def evaluate(self, vector: ParameterVector, sets: Sequence[str]) -> ClusterEvaluation:
        """Begin to evaluate a parameter vector on the cluster.

        Args:
            vector: shape (d,).
            sets: names of sets of samples.

        Raises:
            ValueError: a vector of another length, or an unknown set.
        """
        self._workload.require_sets(vector, sets)
        cut = blocks_of([len(self._workload.sets[name].y) for name in sets])
        sent, names = self._ray.put(vector), tuple(sets)
        tasks = [
            partial(_evaluate, sent=sent, names=names, part=part)
            for part in _parts(len(cut), self._wanted)
        ]
        return ClusterEvaluation(len(names), cut, lambda: self._done(tasks))

    def close(self) -> None:
        """End the actors, and the cluster if it began with this engine."""
        for actor in [*self._actors, *self._starting.values()]:
            self._ray.kill(actor)
        self._actors, self._starting = [], {}
        if self._begun_here and self._ray.is_initialized():
            self._ray.shutdown()

    def _done(self, tasks: Sequence[Callable[[Any], Any]]) -> list[Any]:
        """Return what each task comes to; those of lost actors are done again by others.

        Raises:
            TrainingError: no actor is left and none can be started, or the model failed.
        """
        left = deque(range(len(tasks)))
        found: dict[int, Any] = {}
        running: dict[Any, tuple[int, Any]] = {}
        losses = 0
        self._start_missing()
        free = list(self._actors)
        while len(found) < len(tasks):
            while left and free:
                actor, place = free.pop(), left.popleft()
                running[tasks[place](actor)] = (place, actor)
            answer = self._next_answer(running)
            if answer in self._starting:
                free += self._joined(answer)
                continue
            place, actor = running.pop(answer)
            try:
                found[place] = self._ray.get(answer)
            except self._ray.exceptions.RayTaskError as error:
                _fail(error)
            except self._ray.exceptions.RayError as error:
                losses += 1
                if losses > MOST_LOSSES:
                    raise TrainingError(f"{losses} actors of the cluster were lost") from error
                left.appendleft(place)
                self._actors.remove(actor)
                self._start_missing()
            else:
                free.append(actor)
        return [found[place] for place in range(len(tasks))]

    def _start_missing(self) -> None:
        """Ask for as many actors as are wanted: on a cluster without room some may never come."""
        missing = self._wanted - len(self._actors) - len(self._starting)
        for _ in range(missing):
            actor = self._actor.remote(self._shared)
            self._starting[actor.ready.remote()] = actor

    def _next_answer(self, running: Mapping[Any, tuple[int, Any]]) -> Any:
        """Return the first answer: of an actor at work, or of one that comes up.

        Raises:
            TrainingError: nobody is at work, and nobody comes up.
        """
        patience = None if running else _START_SECONDS
        ready, _ = self._ray.wait([*running, *self._starting], num_returns=1, timeout=patience)
        if not ready:
            raise TrainingError(
                f"no actor of the cluster came up in {_START_SECONDS:.0f} s: it has no free core"
            )
        return ready[0]

    def _joined(self, answer: Any) -> list[Any]:
        """Return the actor that has come up, or nothing if it was lost before.

        Raises:
            TrainingError: what it was given does not work where it is.
        """
        actor = self._starting.pop(answer)
        try:
            self._ray.get(answer)
        except self._ray.exceptions.RayTaskError as error:
            _fail(error)
        except self._ray.exceptions.RayError as error:
            if not self._actors:
                raise TrainingError(f"no actor of the cluster came up: {error!s:.300}") from error
            return []
        self._actors.append(actor)
        return [actor]


class ClusterEvaluation:
    """An evaluation that is done when it is asked for.

    Args:
        sets: how many sets of samples.
        cut: all their blocks.
        done: returns what each part of them came to, in order.
    """

    def __init__(
        self, sets: int, cut: Sequence[EvaluationBlock], done: Callable[[], list[list[Evaluation]]]
    ) -> None:
        self._sets = sets
        self._cut = cut
        self._done = done

    def result(self) -> tuple[Evaluation, ...]:
        """Return one part for each set of samples that was asked for, in that order.

        Raises:
            TrainingError: no actor is left and none can be started, or the model failed.
        """
        found = [part for parts in self._done() for part in parts]
        return totals_by_set(self._sets, self._cut, found)


def _train(actor: Any, sent: Any, jobs: Sequence[TrainingJob]) -> Any:
    return actor.train.remote(sent, jobs)


def _evaluate(actor: Any, sent: Any, names: Sequence[str], part: slice) -> Any:
    return actor.evaluate.remote(sent, names, part)


class _Actor:
    """One core of the cluster, with a trainer and an evaluator of its own."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        with as_training_error():
            self._trainer: UpdateTrainer = workload.trainer()
            self._evaluator = Evaluator(workload)

    def ready(self) -> None:
        """Answer once it is up."""

    def train(self, start: ParameterVector, jobs: Sequence[TrainingJob]) -> NDArray[np.float32]:
        """Return the updates of some jobs, shape (jobs, d)."""
        rows = np.empty((len(jobs), self._workload.model.dimension), dtype="<f4")
        with as_training_error():
            self._trainer.train(start, jobs, list(rows))
        return rows

    def evaluate(
        self, vector: ParameterVector, sets: Sequence[str], chosen: slice
    ) -> list[Evaluation]:
        """Return what some blocks of some sets come to."""
        with as_training_error():
            return self._evaluator.parts(vector, sets, chosen)


def _fail(error: Any) -> NoReturn:
    """Say what an actor said: in words of this project, or as its failure.

    Raises:
        TrainingError: always.
    """
    cause = error.cause
    said = str(cause) if isinstance(cause, CmflError) else f"{type(cause).__name__}: {cause!s:.300}"
    raise TrainingError(f"an actor of the cluster failed: {said}") from error


def _ray() -> ModuleType:
    """Return the library.

    Raises:
        ConfigurationError: it is not installed.
    """
    try:
        import ray  # noqa: PLC0415 - heavy, and an extra
    except ImportError as error:
        raise ConfigurationError(
            "machine.engine = ray needs the extra 'ray': pip install -c constraints.txt '.[ray]'"
        ) from error
    return ray


def _join(ray: ModuleType, address: str) -> None:
    """Join a cluster.

    Raises:
        ConfigurationError: there is none at the address.
    """
    try:
        ray.init(address=address, log_to_driver=False, include_dashboard=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigurationError(f"machine.ray_address = {address}: {said:.300}") from error


def _parts(length: int, count: int) -> list[slice]:
    """Return so many nearly equal parts of a sequence, none of them empty."""
    parts = max(1, min(length, count))
    bounds = [length * i // parts for i in range(parts + 1)]
    return [slice(*pair) for pair in pairwise(bounds)]
