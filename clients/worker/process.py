"""The process of a worker: its setup, its log and its loop.

A worker waits for missing parts: a node that is starting, a blob that has not arrived. Wrong parts
end it at once: another chain, other code at the address, unregistered keys, other data.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import TextIO, TypeVar

import torch

from clients.configuration.parsing import (
    configuration_from_document,
    lot_warning,
    require_all_rounds,
    require_unpredictable,
)
from clients.configuration.schema import Configuration
from clients.datasets.federated_data import FederatedData
from clients.datasets.own_samples import own_parts
from clients.models.model import Model
from clients.runs.bound_inputs import bound_model
from clients.runs.metrics import TEST
from clients.training.engine_factory import environment_of, run_engine
from clients.worker.background import (
    FailureTracker,
    LocalUpdates,
    Moment,
    RestartingEngine,
    SingleThreadExecutor,
)
from clients.worker.status import (
    CountingBlobs,
    CountingMailbox,
    StatusFile,
    WorkerCounters,
    WorkerFolder,
    WorkerState,
    status_before,
    worker_status,
)
from clients.worker.worker import HONEST, ChainFinalityGuard, HostedClients, Worker, WorkerBehaviour
from ledger.actors.journal import FileJournal
from ledger.actors.steps import ActorContext
from ledger.chain.contract.deploy import (
    creation_block,
    deployed_document,
    deployed_domain,
    require_code,
)
from ledger.chain.contract.ledger import LedgerWriter
from ledger.chain.finality import FinalityCheckpoints, final_number
from ledger.chain.ports import ChainWriter, IncompleteLogsError, NotServedError
from ledger.claims import SECTION
from ledger.io.retry import Backoff
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.encoding import checksum
from ledger.protocol.errors import (
    BlobMissingError,
    BlobUnreachableError,
    ChainError,
    ConfigurationError,
)
from ledger.protocol.signing import KeySigner, data_salt
from ledger.protocol.types import ClientId, Domain
from ledger.storage.http import UploadSigner
from ledger.storage.opening import mailbox_at, store_at

_log = logging.getLogger(__name__)

LAST_TRAINING_SECONDS = 10.0  # longest wait of a worker that ends for its training


@dataclass(frozen=True, slots=True)
class WorkerTarget:
    """Location of a worker's run, and how the worker takes part.

    The URL may hold a secret. Without confirmations the chain's finality counts. The seed spreads
    the pauses before retries, and nothing else.
    """

    rpc_url: str
    chain_id: int
    contract: str
    blobs: str
    mailbox: str
    data: Path | None = None
    settings: tuple[str, ...] = ()
    confirmations: int | None = None
    allow_unknown_creation: bool = False
    allow_predictable_seeds: bool = False
    accept_rollback: bool = False
    seed: int = 0
    behaviour: WorkerBehaviour = HONEST


@dataclass(frozen=True, slots=True)
class DeployedRun:
    """A run, read from its contract."""

    ledger: LedgerWriter
    domain: Domain
    document: RunDocument


def find_deployed_run(chain: ChainWriter, places: WorkerTarget) -> DeployedRun:
    """Return the run of a contract, with its document from the blobs."""
    require_code(chain, places.contract)
    ledger = _opened_ledger(chain, places)
    deployment = ledger.deployment()
    data = store_at(places.blobs).get(deployment.config, MAX_DOCUMENT_BYTES)
    document = deployed_document(data, deployment)
    domain = deployed_domain(ledger, allow_unknown_creation=places.allow_unknown_creation)
    return DeployedRun(ledger, domain, document)


def _opened_ledger(chain: ChainWriter, places: WorkerTarget) -> LedgerWriter:
    newest, ledger = chain.head(), LedgerWriter(chain, places.contract)
    final = final_number(chain, newest, places.confirmations)
    try:
        number: int | None = ledger.state(final).round
    except ChainError:  # the contract is not there by then, or the node has no such state
        number = None
    if number != 0:  # a worker that waits for round 1 asks for no more
        created = creation_block(chain, places.contract, final)
        if created is not None:
            younger = LedgerWriter(chain, places.contract, created)
            # A node that answers with nothing for a dropped state makes it seem younger.
            if younger.opening(1, final) is not None:
                return younger
        if ledger.opening(1, final) is not None:
            _log.warning(
                "the node has no old states, so the contract's creation block is unknown; its "
                "events are searched from block 0"
            )
            return ledger
    if number:
        raise IncompleteLogsError(chain.node, f"no log up to block {final} opens round 1")
    hint = f"{places.confirmations} confirmations"
    if places.confirmations is None:
        hint = "if the node names final blocks late or never, give --confirmations N"
    raise NotServedError(
        f"the first round of {places.contract} has not opened by block {final}, the newest final "
        f"one with block {newest.number} at its head; {hint}"
    )


def signers_by_client(
    document: RunDocument, signers: Sequence[KeySigner]
) -> dict[ClientId, KeySigner]:
    """Return the signer of each hosted client, by its index in the registry."""
    places = {client.address: ClientId(i) for i, client in enumerate(document.registry)}
    hosted: dict[ClientId, KeySigner] = {}
    for signer in signers:
        client = places.get(signer.address)
        if client is None:
            raise ConfigurationError(
                f"account {checksum(signer.address)} is not one of the run's "
                f"{len(document.registry)} registered clients"
            )
        if client in hosted:
            raise ConfigurationError(f"the key of client {client} is given twice; remove one")
        hosted[client] = signer
    return hosted


@contextmanager
def open_worker(
    run: DeployedRun, places: WorkerTarget, signers: Sequence[KeySigner], folder: WorkerFolder
) -> Iterator[tuple[Worker, WorkerCounters]]:
    """Open a worker on its locked folder; training is interrupted when the context ends."""
    document = run.document
    warning = shared_run_warning(document, places, mines_at_once=False)
    if warning is not None:
        _log.warning(warning)
    hosted = signers_by_client(document, signers)
    configuration, data, model = own_inputs(document, hosted, places)
    counts, uploads = WorkerCounters(), upload_signer(run.domain, hosted)
    acted_on = FinalityCheckpoints(folder.acted_on, run.ledger.chain)
    if places.accept_rollback:
        acted_on.accept(run.ledger.chain)
    journal, training = FileJournal(folder.journal), SingleThreadExecutor("training")
    try:
        with _engine(configuration, model, data, len(hosted)) as engine:
            blobs = CountingBlobs(store_at(places.blobs, uploads), counts)
            mailbox = CountingMailbox(mailbox_at(places.mailbox, uploads), counts)
            actors = document.parameters, run.domain, run.ledger, blobs, mailbox, journal
            context = ActorContext(*actors, finality_blocks=places.confirmations)
            environment = environment_of(configuration)
            hosting = HostedClients(
                signers=hosted,
                engine=engine,
                own=LocalUpdates(folder.payloads, environment.digest),
                training=training,
                sending=SingleThreadExecutor("sending"),
                environment=environment,
                behaviour=places.behaviour,
                test_set=TEST if len(data.test.y) else None,
                finality=ChainFinalityGuard(run.ledger.chain, acted_on),
            )

            def begin(round_number: int) -> None:
                uploads.round = round_number

            patience = FailureTracker(Random(places.seed))  # noqa: S311 - it spreads pauses
            try:
                yield Worker(context, hosting, patience, begin), counts
            finally:
                engine.interrupt()
                training.interrupt()
                if not training.has_ended(LAST_TRAINING_SECONDS):
                    _log.warning("training does not end within %g s", LAST_TRAINING_SECONDS)
    finally:
        training.interrupt()
        journal.close()


def shared_run_warning(
    document: RunDocument, places: WorkerTarget, *, mines_at_once: bool
) -> str | None:
    """Refuse a run that is not made for several owners; return a warning of a lot to be chosen."""
    parameters = document.parameters
    require_unpredictable(parameters.beacon, is_allowed=places.allow_predictable_seeds)
    require_all_rounds(stops_early=SECTION in document.experiment)
    return lot_warning(parameters.strategy, parameters.beacon, mines_at_once=mines_at_once)


def upload_signer(domain: Domain, signers: Mapping[ClientId, KeySigner]) -> UploadSigner:
    """Return a signer of uploads on behalf of these clients."""
    (first, signer), *rest = sorted(signers.items())
    return UploadSigner(domain, signer, first, tuple(rest))


def own_inputs(
    document: RunDocument, signers: Mapping[ClientId, KeySigner], places: WorkerTarget
) -> tuple[Configuration, FederatedData, Model]:
    """Return settings, samples and model of these clients, as bound by the run document."""
    configuration = configuration_from_document(document, places.data, places.settings)
    salts = {client: data_salt(signer) for client, signer in signers.items()}
    data = own_parts(configuration, document, tuple(sorted(signers)), places.data, salts)
    return configuration, data, bound_model(configuration, data, document)


def _engine(
    configuration: Configuration, model: Model, data: FederatedData, rows: int
) -> RestartingEngine:
    machine = configuration.machine
    if machine.engine == "flower":
        raise ConfigurationError(
            "machine.engine = flower simulates all clients, but a worker trains its own; remove it"
        )
    if machine.workers == 1:
        # For the whole process: what another thread sets would hold for the one that trains too.
        torch.set_num_threads(1)
    sets = {TEST: data.test} if len(data.test.y) else {}
    return RestartingEngine(lambda: run_engine(configuration, model, data, rows, sets))


LOGGED = ("clients", "ledger", "cmfl")  # packages whose records count; others only warn
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class LogFormat(StrEnum):
    """Format of a log line."""

    TEXT = "text"
    JSON = "json"


class _Lines(logging.Formatter):
    """A line for each record; messages quote nodes and stores, and may control no terminal."""

    def __init__(self, style: LogFormat) -> None:
        super().__init__()
        self.style = style

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        level = record.levelname.lower()
        if self.style is LogFormat.TEXT:
            words = " ".join(record.getMessage().split())
            sentence = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in words)
            return f"{time} {level:7} {sentence}"
        line = {"time": time, "level": level, "logger": record.name, "event": record.getMessage()}
        line |= {key: value for key, value in vars(record).items() if key not in _USUAL}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


@contextmanager
def logging_to(stream: TextIO, style: LogFormat, level: int = logging.INFO) -> Iterator[None]:
    """Write this project's log records of at least `level` to a stream, and nowhere else."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Lines(style))
    loggers = [logging.getLogger(name) for name in LOGGED]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(level)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, (old, propagates) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(old)
            logger.propagate = propagates


T = TypeVar("T")

BACKOFF = Backoff(0.25, longest_seconds=1)  # round 1 may take commitments for seconds only
SHORTEST_PAUSE_SECONDS = 0.01


@dataclass(slots=True)
class Startup:
    """Waits for node and blobs, which may be late, until `wait` or `cmfl leave` ends the worker."""

    folder: WorkerFolder
    wait: Callable[[float], bool]
    wall: Callable[[], float]
    _reason: str = ""
    _times: int = 0

    def retry_until_ready(self, task: Callable[[], T], backoff: Backoff = BACKOFF) -> T | None:
        """Return a task's result once node and blobs answer; None if the worker is to end."""
        failures = 0
        while True:
            try:
                return task()
            except (NotServedError, BlobMissingError, BlobUnreachableError) as error:
                reason = str(error)
            # Another block number alone is not news.
            if re.sub(r"\d+", "", reason) != re.sub(r"\d+", "", self._reason):
                _log.warning("waits: %s", reason)
            self._reason = reason
            failures += 1
            self._times += 1
            self._write(WorkerState.STARTING)
            left = backoff.pause(failures)
            while left > 0:
                step = min(0.25, left)
                if self.wait(step) or self.folder.leave.exists():
                    self._write(WorkerState.ENDED)
                    self.folder.leave.unlink(missing_ok=True)
                    return None
                left -= step

    def _write(self, state: WorkerState) -> None:
        status = status_before(state, os.getpid(), self._reason, self._times)
        StatusFile(self.folder.status).write(status, self.wall())


@dataclass(slots=True)
class WorkerLoop:
    """Drives one worker in its folder; `account` returns the account that pays now, EIP-55."""

    worker: Worker
    counts: WorkerCounters
    folder: WorkerFolder
    status: StatusFile
    account: Callable[[], str]
    poll_seconds: float
    stand: WorkerState = WorkerState.RUNNING
    _leaves_after: int | None = None

    def run(self, moment: Callable[[], Moment], wait: Callable[[float], bool]) -> None:
        is_told = wait(0)
        while not is_told:
            later = self.worker.step(moment())
            self.counts.look(self.worker)
            if self._has_ended():
                break
            self._write(moment())
            pause = self.poll_seconds if later is None else min(later, self.poll_seconds)
            is_told = wait(max(SHORTEST_PAUSE_SECONDS, pause))
        if is_told:
            _log.info("stops on request")
        self.stand = WorkerState.ENDED
        self._write(moment())
        # Also a request made while it ended: the next process has not been asked to leave.
        self.folder.leave.unlink(missing_ok=True)

    def _has_ended(self) -> bool:
        if self.worker.is_finished:
            _log.info("the run is finished")
            return True
        if not self.worker.can_act:
            _log.warning("every client of this worker is banned, so it stops")
            return True
        chain, seats = self.worker.chain, self.worker.seats
        if self._leaves_after is None and self.folder.leave.exists() and chain is not None:
            self._leaves_after = chain.round
            self.stand = WorkerState.LEAVING
            _log.info("leaves after round %d", chain.round, extra={"round": chain.round})
        if self._leaves_after is None or chain is None or seats is None:
            return False
        return chain.round > self._leaves_after or not seats.active

    def _write(self, moment: Moment) -> None:
        status = worker_status(self.worker, self.counts, self.stand, self.account())
        self.status.write(status, moment.wall)
