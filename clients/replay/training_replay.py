"""Repeated training of a run's updates, round by round, through the engines that trained them.

The chosen clients of a round are trained together. A lockstep chunk takes as long for one client as
for all of its places. The bytes of an update do not depend on the other clients of its chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from clients.configuration.schema import Configuration
from clients.datasets.own_samples import samples_digest_of
from clients.devices import available_caps, cap_named, device_named
from clients.replay.replay_inputs import (
    EnvironmentOf,
    InputsMissingError,
    RecordedRun,
    RecordedUpdate,
    ReplayInputs,
    ReplayRequest,
    RoundToRepeat,
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


def replay_run(
    run: RecordedRun,
    blobs: BlobReader,
    request: ReplayRequest,
    recorded: EnvironmentOf,
    log: ResultFile | None = None,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> TrainingReplay:
    """Repeat the chosen updates of a run, except for those whose results the log has."""
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
        missing = tuple(
            ReplayedUpdate(
                round_.round, update.client, ReplayVerdict.NOT_CHECKABLE, str(error), environment
            )
            for round_ in run.rounds
            for update in round_.updates
        )
        return TrainingReplay(run.domain, environment, "nothing was trained", missing)
    rows = max(len(round_.updates) for round_ in run.rounds)
    updates: list[ReplayedUpdate] = []
    with closing(
        _Repetition(request, configuration, inputs, blobs, environment, recorded, log, rows)
    ) as repetition:
        for round_ in run.rounds:
            for update in repetition.of_round(round_):
                updates.append(update)
                on_progress(len(updates), run.updates)
    return TrainingReplay(run.domain, environment, inputs.described, tuple(updates))


@dataclass(slots=True, eq=False)
class _Repetition:
    """Repeats updates, at most `rows` a round; a model's failure replaces the engine."""

    request: ReplayRequest
    configuration: Configuration
    inputs: ReplayInputs
    blobs: BlobReader
    environment: TrainingEnvironment
    recorded: EnvironmentOf
    log: ResultFile | None
    rows: int
    trained: dict[ClientId, TrainedUpdate] = field(default_factory=dict)
    engine: Engine | None = None

    def of_round(self, round_: RoundToRepeat) -> Iterator[ReplayedUpdate]:
        missing = dict(self.inputs.missing)
        earlier: dict[ClientId, ReplayedUpdate] = {}
        if self.log is not None:
            for update in (u for u in round_.updates if u.client not in missing):
                origin = self._origin(round_, update)
                result = self.log.find(origin, self.environment, round_.round, update.client)
                if result is not None:
                    earlier[update.client] = result
        start = self._vector(round_.model, FLOAT32)
        clients = [update.client for update in round_.updates]
        if start is None:
            reason = f"the model of round {round_.round}, 0x{round_.model.hex()}, is not available"
            missing = dict.fromkeys(clients, reason) | missing
        else:
            able = [c for c in clients if c not in missing and c not in earlier]
            missing |= self._train(start, round_.seed, able)
        for update in round_.updates:
            if update.client in earlier:
                yield earlier[update.client]
                continue
            replayed = self._compared(round_, update, missing.get(update.client))
            if self.log is not None and replayed.losses is not None:
                self.log.add(self._origin(round_, update), replayed)
            yield replayed

    def close(self) -> None:
        if self.engine is not None:
            self.engine.close()
            self.engine = None

    def _origin(self, round_: RoundToRepeat, update: RecordedUpdate) -> Digest:
        model, recorded = self.inputs.model, self.recorded(round_.round, update.client)
        samples = samples_digest_of(self.inputs.data.train[update.client], bytes(32))
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

    def _train(
        self, start: NDArray[np.float32], seed: Digest, clients: Sequence[ClientId]
    ) -> dict[ClientId, str]:
        """Train clients together, one by one after a failure; return why some have no update."""
        jobs = [TrainingJob(int(client), training_seed(seed, client)) for client in clients]
        failed: dict[ClientId, str] = {}
        try:
            self.trained = dict(zip(clients, self._updates(start, jobs), strict=True))
        except TrainingError:
            self.trained = {}
            for client, job in zip(clients, jobs, strict=True):
                try:
                    (update,) = self._updates(start, [job])
                except TrainingError as error:
                    failed[client] = str(error)
                else:
                    self.trained[client] = update.copy()
        return failed

    def _updates(
        self, start: NDArray[np.float32], jobs: Sequence[TrainingJob]
    ) -> list[TrainedUpdate]:
        if self.engine is None:
            model, data = self.inputs.model, self.inputs.data
            self.engine = run_engine(
                self.configuration, model, data, self.rows, records_losses=True
            )
        try:
            return self.engine.train(start, jobs) if jobs else []
        except TrainingError:
            self.close()  # a worker that has failed has ended
            raise

    def _compared(
        self, round_: RoundToRepeat, update: RecordedUpdate, missing: str | None
    ) -> ReplayedUpdate:
        verdict, reason = ReplayVerdict.NOT_CHECKABLE, missing or ""
        losses: bytes | None = None
        difference: UpdateDifference | None = None
        recorded = self.recorded(round_.round, update.client)
        if missing is None:
            trained = self.trained[update.client]
            losses = trained.losses
            if commitment_of(update.client, trained.payload.digest) == update.commitment:
                verdict = ReplayVerdict.SAME
            else:
                difference = self._difference(round_, update)
                verdict, reason = self._verdict(update, recorded, difference)
        found = verdict, reason, self.environment, recorded, losses, difference
        return ReplayedUpdate(round_.round, update.client, *found)

    def _verdict(
        self,
        update: RecordedUpdate,
        recorded: TrainingEnvironment | None,
        difference: UpdateDifference | None,
    ) -> tuple[ReplayVerdict, str]:
        far = "" if difference is None else f" ({difference})"
        unbound = self.inputs.unbound.get(update.client)
        if unbound is not None:
            reason = f"the samples given make another update, and {unbound}"
        elif recorded is None and not self.request.trained_here:
            reason = f"the bits differ{far}, and its training environment is not recorded"
        elif recorded is not None and recorded != self.environment:
            reason = f"the bits differ{far}, and so does the environment: it was {recorded}"
            reason += _hint(recorded, self.environment)
        else:
            said = ", if it was trained in this environment, as you say"
            where = said if recorded is None else ""
            return ReplayVerdict.OTHER, f"{self.inputs.described} make another update{far}{where}"
        return ReplayVerdict.NOT_CHECKABLE, reason

    def _difference(self, round_: RoundToRepeat, update: RecordedUpdate) -> UpdateDifference | None:
        """Return the distance of an update from the recorded one.

        The updates that were repeated here show how honest ones differ, or else the accepted ones.
        """
        form = self.configuration.protocol.payload_form
        repeated = self.trained[update.client].vector
        recorded = self._vector(update.payload, form)
        if recorded is None or not (np.isfinite(recorded).all() and np.isfinite(repeated).all()):
            return None
        honest: Iterable[NDArray[np.float32] | None]
        if len(self.trained) > 1:
            honest = (trained.vector for trained in self.trained.values())
        else:
            honest = (self._vector(digest, form) for digest in round_.accepted)
        vectors = [vector for vector in honest if vector is not None]
        return UpdateDifference.between(repeated, recorded, vectors)

    def _vector(self, digest: Digest | None, form: PayloadForm) -> NDArray[np.float32] | None:
        dimension = self.inputs.model.dimension
        if digest is None:
            return None
        try:
            data = self.blobs.get(digest, form.size(dimension))  # which compares it with its digest
        except BlobError:
            return None
        return form.update_of(data, dimension)


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
    """Return a configuration with the one cap that all recorded environments name, if any."""
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
