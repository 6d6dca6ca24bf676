"""Repeated training of a run's updates, round by round, through the engines that trained them.

The chosen clients of a round are trained together: a lockstep chunk takes as long for one client as
for all of its places, and the bytes of an update do not depend on the other clients of its chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clients.configuration.schema import Configuration
from clients.datasets.own_samples import samples_digest_of
from clients.devices import available_caps, cap_named, device_named
from clients.replay.replay_inputs import (
    InputsMissingError,
    RecordedRound,
    RecordedRun,
    RecordedUpdate,
    ReplayInputs,
    ReplayRequest,
    replay_configuration,
    replay_inputs,
)
from clients.replay.results import ReplayedUpdate, ResultFile, TrainingReplay, UpdateDifference
from clients.training.engine_factory import (
    environment_here,
    require_engine,
    require_known,
    run_engine,
    settled_path,
)
from clients.training.port import Engine, TrainedUpdate, TrainingError, TrainingJob
from ledger.protocol import canonical
from ledger.protocol.encoding import commitment_of, sha256
from ledger.protocol.errors import BlobError
from ledger.protocol.inputs import training_seed
from ledger.protocol.payloads import FLOAT32, PayloadForm
from ledger.protocol.training_replay import ReplayVerdict, TrainingEnvironment
from ledger.protocol.types import ClientId, Digest
from ledger.storage.blobs import BlobReader

if TYPE_CHECKING:
    from clients.replay.replay_inputs import EnvironmentOf

_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class ReplayTask:
    """A repetition of some updates.

    Attributes:
        recorded: environment that the trainer of a round's update recorded, if it did.
        log: results so far, which are not computed again; None for none.
    """

    request: ReplayRequest
    configuration: Configuration
    inputs: ReplayInputs
    blobs: BlobReader
    environment: TrainingEnvironment
    recorded: EnvironmentOf
    log: ResultFile | None

    def origin(self, round_: RecordedRound, update: RecordedUpdate) -> Digest:
        """Return a digest of everything that the result of an update follows from."""
        model, recorded = self.inputs.model, self.recorded(round_.round, update.client)
        samples = samples_digest_of(self.inputs.data.train[update.client], bytes(_DIGEST_BYTES))
        parts = {
            "update": [round_.round, round_.seed, round_.model, update.client, update.commitment],
            "model": [model.source, model.frozen_state, str(sorted(model.recorded().items()))],
            "training": self.configuration.training.model_dump_json(),
            "samples": [samples, self.inputs.unbound.get(update.client, "")],
            "environments": [
                self.environment.digest,
                b"" if recorded is None else recorded.digest,
                self.request.trained_here,
            ],
        }
        return sha256(canonical.encode(parts))


def replay_run(
    run: RecordedRun,
    blobs: BlobReader,
    request: ReplayRequest,
    recorded: EnvironmentOf,
    log: ResultFile | None = None,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> TrainingReplay:
    """Repeat the chosen updates of a run; see `ReplayTask`.

    Args:
        on_progress: called with the updates that are done, and their number.
    """
    configuration = replay_configuration(run.document, request)
    configuration = _under_recorded_cap(configuration, run, recorded)
    here = {"engine": "local", "workers": request.jobs}
    machine = configuration.machine.model_copy(update=here)
    configuration = configuration.model_copy(update={"machine": machine})
    require_engine(machine.device, None, machine.isa)
    environment = environment_here(settled_path(configuration), machine.device, machine.isa)
    require_known(environment)
    on_progress(0, run.updates)
    try:
        inputs = replay_inputs(run.document, configuration, run.clients, request)
    except InputsMissingError as error:
        missing = not_repeated(environment, run.rounds, str(error))
        return TrainingReplay(run.domain, environment, "nothing was trained", missing)
    task = ReplayTask(request, configuration, inputs, blobs, environment, recorded, log)
    updates = []
    for update in replay(task, run.rounds):
        updates.append(update)
        on_progress(len(updates), run.updates)
    return TrainingReplay(run.domain, environment, inputs.described, tuple(updates))


def replay(task: ReplayTask, rounds: Sequence[RecordedRound]) -> Iterator[ReplayedUpdate]:
    """Repeat updates, and yield each with its verdict, ascending by round and client."""
    with ExitStack() as stack:
        trainer = _Trainer(task, max(len(round_.updates) for round_ in rounds))
        stack.callback(trainer.close)
        for round_ in rounds:
            yield from _of_round(task, trainer, round_)


def not_repeated(
    environment: TrainingEnvironment, rounds: Sequence[RecordedRound], reason: str
) -> tuple[ReplayedUpdate, ...]:
    """Return updates that nobody can repeat here, for one reason."""
    return tuple(
        ReplayedUpdate(
            round_.round, update.client, ReplayVerdict.NOT_CHECKABLE, reason, environment
        )
        for round_ in rounds
        for update in round_.updates
    )


def _of_round(
    task: ReplayTask, trainer: _Trainer, round_: RecordedRound
) -> Iterator[ReplayedUpdate]:
    missing = dict(task.inputs.missing)
    earlier = _earlier(task, round_)
    start = _vector(task, round_.model, FLOAT32)
    if start is None:
        reason = f"the model of round {round_.round}, 0x{round_.model.hex()}, is not to be had"
        missing = {update.client: reason for update in round_.updates} | missing
    else:
        clients = [update.client for update in round_.updates]
        able = [c for c in clients if c not in missing and c not in earlier]
        missing |= trainer.train(start, round_.seed, able)
    for update in round_.updates:
        if update.client in earlier:
            yield earlier[update.client]
            continue
        verdict = ReplayVerdict.NOT_CHECKABLE, missing.get(update.client, "")
        losses: bytes | None = None
        difference: UpdateDifference | None = None
        if update.client not in missing:
            trained = trainer.updates[update.client]
            losses = trained.losses
            if commitment_of(update.client, trained.payload.digest) == update.commitment:
                verdict = ReplayVerdict.SAME, ""
            else:
                difference = _difference(task, round_, update, trainer.updates)
                verdict = _verdict(task, round_.round, update, difference)
        replayed = ReplayedUpdate(
            round=round_.round,
            client=update.client,
            verdict=verdict[0],
            reason=verdict[1],
            environment=task.environment,
            recorded=task.recorded(round_.round, update.client),
            losses=losses,
            difference=difference,
        )
        if task.log is not None and losses is not None:
            task.log.add(task.origin(round_, update), replayed)
        yield replayed


def _earlier(task: ReplayTask, round_: RecordedRound) -> dict[ClientId, ReplayedUpdate]:
    if task.log is None:
        return {}
    results = {
        update.client: task.log.find(task.origin(round_, update), task.environment)
        for update in round_.updates
        if update.client not in task.inputs.missing
    }
    return {client: result for client, result in results.items() if result is not None}


def _verdict(
    task: ReplayTask, number: int, update: RecordedUpdate, difference: UpdateDifference | None
) -> tuple[ReplayVerdict, str]:
    """Return the verdict on an update of other bits, and its reason."""
    recorded = task.recorded(number, update.client)
    far = "" if difference is None else f" ({difference})"
    unbound = task.inputs.unbound.get(update.client)
    if unbound is not None:
        return ReplayVerdict.NOT_CHECKABLE, f"the samples given make another update, and {unbound}"
    if recorded is None and not task.request.trained_here:
        reason = f"the bits differ{far}, and nothing says in which environment it was trained"
        return ReplayVerdict.NOT_CHECKABLE, reason
    if recorded is not None and recorded != task.environment:
        reason = f"the bits differ{far}, and so does the environment: it was {recorded}"
        return ReplayVerdict.NOT_CHECKABLE, reason + _hint(recorded, task.environment)
    where = "" if recorded is not None else ", if it was trained in this environment, as you say"
    return ReplayVerdict.OTHER, f"{task.inputs.described} make another update{far}{where}"


def _hint(recorded: TrainingEnvironment, here: TrainingEnvironment) -> str:
    """Return how to repeat an update under the cap that its trainer recorded, if it did."""
    cap = cap_named(recorded.isa)
    if cap is None or recorded.isa == here.isa or here.device != "cpu":
        return ""
    if cap not in available_caps():
        return "; this processor cannot do that cap"
    return f"; --set machine.isa={cap} repeats it under that cap"


def _under_recorded_cap(
    configuration: Configuration, run: RecordedRun, recorded: EnvironmentOf
) -> Configuration:
    """Return a configuration with the cap that all recorded environments of the updates name.

    Without one such cap, or if it cannot be had here, or if another one is set, it stays as it is.
    """
    machine = configuration.machine
    if machine.isa is not None or device_named(machine.device).type != "cpu":
        return configuration
    environments = (
        recorded(round_.round, update.client) for round_ in run.rounds for update in round_.updates
    )
    names = {environment.isa for environment in environments if environment is not None}
    cap = cap_named(names.pop()) if len(names) == 1 else None
    if cap not in available_caps():
        return configuration
    return configuration.model_copy(update={"machine": machine.model_copy(update={"isa": cap})})


def _difference(
    task: ReplayTask,
    round_: RecordedRound,
    update: RecordedUpdate,
    trained: Mapping[ClientId, TrainedUpdate],
) -> UpdateDifference | None:
    repeated = trained[update.client].vector
    recorded = _vector(task, update.payload, task.configuration.protocol.payload_form)
    if recorded is None or not (np.isfinite(recorded).all() and np.isfinite(repeated).all()):
        return None
    return UpdateDifference.between(repeated, recorded, _comparable(task, round_, trained))


def _comparable(
    task: ReplayTask, round_: RecordedRound, trained: Mapping[ClientId, TrainedUpdate]
) -> list[NDArray[np.float32]]:
    """Return updates of a round that differ as honest ones do.

    Those that were repeated here are honest; where they are fewer than two, the accepted ones.
    """
    if len(trained) > 1:
        return [update.vector for update in trained.values()]
    form = task.configuration.protocol.payload_form
    vectors = [_vector(task, digest, form) for digest in round_.accepted]
    return [vector for vector in vectors if vector is not None]


def _vector(
    task: ReplayTask, digest: Digest | None, form: PayloadForm
) -> NDArray[np.float32] | None:
    """Return a published model or update; None if it is not to be had, or malformed."""
    dimension = task.inputs.model.dimension
    if digest is None:
        return None
    try:
        data = task.blobs.get(digest, form.size(dimension))  # which compares it with its digest
    except BlobError:
        return None
    return form.update_of(data, dimension)


class _Trainer:
    """An engine that goes on after the failure of a user's model."""

    def __init__(self, task: ReplayTask, rows: int) -> None:
        self.updates: dict[ClientId, TrainedUpdate] = {}
        self._task = task
        self._rows = rows
        self._engine: Engine | None = None

    def train(
        self, start: NDArray[np.float32], seed: Digest, clients: Sequence[ClientId]
    ) -> dict[ClientId, str]:
        """Train clients together, one by one after a failure; return why some have no update."""
        jobs = [TrainingJob(int(client), training_seed(seed, client)) for client in clients]
        try:
            self.updates = dict(zip(clients, self._trained(start, jobs), strict=True))
        except TrainingError:
            self.updates, failed = {}, {}
            for client, job in zip(clients, jobs, strict=True):
                try:
                    (update,) = self._trained(start, [job])
                except TrainingError as error:
                    failed[client] = str(error)
                else:
                    self.updates[client] = update.copy()
            return failed
        return {}

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _trained(
        self, start: NDArray[np.float32], jobs: Sequence[TrainingJob]
    ) -> list[TrainedUpdate]:
        if self._engine is None:
            inputs, configuration = self._task.inputs, self._task.configuration
            self._engine = run_engine(
                configuration, inputs.model, inputs.data, self._rows, records_losses=True
            )
        try:
            return self._engine.train(start, jobs) if jobs else []
        except TrainingError:
            self.close()  # a worker that has failed has ended
            raise
