"""A worker's folder, metrics and status."""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any
from wsgiref.types import StartResponse, WSGIEnvironment

from clients.worker.background import WorkPart
from ledger.io.home import DISK, JOURNAL, WRITING, HeldError, process_in, read_file, take_lock
from ledger.io.http import names_this_host
from ledger.io.parsing import parse_json, refuse_constant
from ledger.protocol.documents.envelope import Envelope, EnvelopeKind
from ledger.protocol.encoding import checksum
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.payloads import Payload
from ledger.protocol.types import ClientId, Digest, Phase
from ledger.storage.blobs import MAX_BLOB_BYTES, ObjectBlobs
from ledger.storage.mailbox import Mailbox

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from clients.worker.worker import RoundParticipants, Worker
    from ledger.actors.view import ChainView


class WorkerFolder:
    """Files that belong to one worker alone; the folder need not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = path / "worker.lock"
        self.journal = path / JOURNAL
        self.payloads = path / "payloads"  # updates, which may not be published yet
        self.acted_on = path / "acted-on.json"  # the final blocks that it acted on
        self.status = path / "status.json"
        self.leave = path / "leave"  # asks the worker to end after its round

    def make(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except (FileExistsError, NotADirectoryError) as error:
            raise ConfigurationError(
                f"--folder {self.path}: the path or one of its parents is not a folder; name "
                "a separate folder for the worker"
            ) from error

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder's lock; the system releases it however the process ends."""
        self.make()
        try:
            descriptor = take_lock(self.lock, 0o600)
        except HeldError as error:
            raise ConfigurationError(
                f"{self.path}: {error} runs a worker on this folder; use one folder for each worker"
            ) from error
        try:
            # It was asked of a worker that was killed before it could: this one is another.
            self.leave.unlink(missing_ok=True)
            for place in (self.path, self.payloads):  # of killed workers, as large as an update
                for unfinished in place.glob(f"{WRITING}*"):
                    unfinished.unlink(missing_ok=True)
            yield
        finally:
            os.close(descriptor)

    def is_held(self) -> bool:
        return self._held()[0]

    def holder(self) -> int | None:
        """Return the process id of the running worker; None if there is none or it is unknown."""
        return self._held()[1]

    def _held(self) -> tuple[bool, int | None]:
        try:
            descriptor = os.open(self.lock, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False, None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True, process_in(descriptor)
        finally:
            os.close(descriptor)
        return False, None


_log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"

COUNTED = {
    "rounds": ("rounds", "Rounds seen to open."),
    "commitments": ("commitments", "Commitments of the worker's clients on the chain."),
    "votes": ("votes", "Requests and replies that members sent."),
    "views": ("views", "Views that members have entered."),
    "bytes_put": ("blob_put_bytes", "Bytes of blobs that were written."),
    "bytes_got": ("blob_got_bytes", "Bytes of blobs that were read."),
}
"""Each count with its name and description as a metric."""


@dataclass(slots=True)
class WorkerCounters:
    """Counts since the process started."""

    rounds: int = 0
    commitments: int = 0
    votes: int = 0
    views: int = 0
    bytes_put: int = 0
    bytes_got: int = 0
    _round: int = 0
    _committed: set[ClientId] = field(default_factory=set)
    _entered: set[tuple[ClientId, Phase, int]] = field(default_factory=set)

    def as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in COUNTED}

    def look(self, worker: Worker) -> None:
        chain, seats = worker.chain, worker.seats
        if chain is None or seats is None:
            return
        if chain.round != self._round:
            self._round = chain.round
            self.rounds += 1
            self._committed.clear()
            self._entered.clear()
        hosted = worker.hosting.signers
        now_there = {mined.client for mined in chain.commitments if mined.client in hosted}
        self.commitments += len(now_there - self._committed)
        self._committed |= now_there
        for member, present in worker.present.items():
            if present.span is not None:
                entered = (member, present.phase, present.span.view)
                self.views += entered not in self._entered
                self._entered.add(entered)


class CountingBlobs(ObjectBlobs):
    """A blob store whose bytes are counted."""

    def __init__(self, blobs: ObjectBlobs, counts: WorkerCounters) -> None:
        super().__init__(blobs._objects)
        self._counts = counts

    def get(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> bytes:
        data = super().get(digest, limit)
        self._counts.bytes_got += len(data)
        return data

    def put_payload(self, payload: Payload) -> None:
        super().put_payload(payload)
        self._counts.bytes_put += payload.size


class CountingMailbox(Mailbox):
    """A mailbox whose new votes are counted."""

    def __init__(self, mailbox: Mailbox, counts: WorkerCounters) -> None:
        super().__init__(mailbox.objects)
        self._counts = counts

    def put(self, envelope: Envelope) -> bool:
        is_new = super().put(envelope)
        if is_new and envelope.kind in {EnvelopeKind.REQUEST, EnvelopeKind.REPLY}:
            self._counts.votes += 1
        return is_new


@dataclass(frozen=True, slots=True, eq=False)
class WorkerMetrics:
    """Collects a worker's metrics on each request; `wall` returns Unix seconds."""

    worker: Worker
    counts: WorkerCounters
    wall: Callable[[], float]

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415

        worker, counts = self.worker, self.counts.as_dict()
        for name, (metric, about) in COUNTED.items():
            yield CounterMetricFamily(f"cmfl_worker_{metric}", about, value=counts[name])
        errors = CounterMetricFamily("cmfl_worker_errors", "Failures.", labels=["part"])
        for part in WorkPart:
            errors.add_metric([str(part)], worker.failures.counts[part])
        yield errors
        newest, chain = worker.observer.newest, worker.chain
        age = 0.0 if newest is None else self.wall() - newest.timestamp
        for name, about, level in (
            ("round", "The open round.", 0 if chain is None else chain.round),
            ("block", "The newest block seen.", 0 if newest is None else newest.number),
            ("behind_seconds", "Age of the newest block by this machine's clock.", age),
        ):
            yield GaugeMetricFamily(f"cmfl_worker_{name}", about, value=level)


@contextmanager
def serve_metrics(metrics: WorkerMetrics, port: int | None) -> Iterator[int | None]:
    """Serve metrics on a port of this machine, 0 for a free one; None not to serve."""
    if port is None:
        yield None
        return
    from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415 - an extra

    registry = CollectorRegistry()
    registry.register(metrics)
    try:
        server, thread = start_http_server(port, LOOPBACK, registry)
    except OSError as error:
        raise ConfigurationError(
            f"--metrics-port {port}: cannot listen on {LOOPBACK} ({error.strerror}); 0 "
            "selects a free port"
        ) from error
    app = server.get_app()
    assert app is not None, "start_http_server sets the app"

    def answered(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        # A page of another site may use a name that resolves to this machine.
        if names_this_host(environ.get("HTTP_HOST", "")):
            return app(environ, start_response)
        start_response("421 Misdirected Request", [("Content-Type", "text/plain")])
        return [b"header Host: must be an address or localhost\n"]

    server.set_app(answered)
    _log.info("serves Prometheus metrics on port %d of %s", server.server_port, LOOPBACK)
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


FORMAT = 1
MAX_STATUS_BYTES = 4 << 20
STARTING = "starting"  # name of a failure that keeps a worker from starting


class WorkerState(StrEnum):
    """State of a worker."""

    STARTING = "starting"
    RUNNING = "running"
    LEAVING = "leaving"
    ENDED = "ended"


def worker_status(
    worker: Worker, counts: WorkerCounters, stand: WorkerState, account: str
) -> dict[str, Any]:
    """Return a worker's status after a step; `account` pays, EIP-55."""
    newest, final, chain = worker.observer.newest, worker.observer.final, worker.chain
    failures = worker.failures
    return _blank(stand, os.getpid(), counts, failures.counts) | {
        "account": account,
        "clients": [int(client) for client in worker.hosting.clients],
        "round": None if final is None else final.round,
        "is_finished": worker.is_finished,
        "roles": _roles(worker, chain),
        "view": _view(worker),
        "head": None if final is None else f"0x{final.head.hex()}",
        "model": None if final is None else f"0x{final.model.hex()}",
        "block": None if newest is None else newest.number,
        "final_block": None if chain is None else chain.final_block,
        "last_error": failures.last,
        "troubles": {
            str(part): {"says": failure.sentence, "times": failure.times}
            for part, failure in sorted(failures.ongoing.items())
        },
        "own_measurement": worker.measuring.newest,
    }


def status_before(stand: WorkerState, pid: int, says: str = "", times: int = 0) -> dict[str, Any]:
    """Return the status of a worker that knows no round yet, and has this failure if any."""
    status = _blank(stand, pid, WorkerCounters(), {STARTING: times} if times else {})
    if says:
        status["last_error"] = f"{STARTING}: {says}"
        status["troubles"] = {STARTING: {"says": says, "times": times}}
    return status


def _blank(
    stand: WorkerState, pid: int, counts: WorkerCounters, errors: Mapping[Any, int]
) -> dict[str, Any]:
    unknown = ("view", "head", "model", "block", "final_block", "last_error")
    return {
        "format": FORMAT,
        "stand": str(stand),
        "pid": pid,
        "account": None,
        "clients": [],
        "round": None,
        "is_finished": False,
        "roles": {},
        **dict.fromkeys(unknown),
        "troubles": {},
        "own_measurement": None,
        "counts": counts.as_dict()
        | {"errors": {str(part): n for part, n in sorted(errors.items())}},
    }


class StatusFile:
    """The status file of a worker, written whole but not durably."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: dict[str, Any] | None = None

    def write(self, status: dict[str, Any], at: float) -> None:
        """Write a changed status with a time in Unix seconds; a full disk is ignored."""
        if status != self._written:
            data = json.dumps({**status, "at": at}, indent=1).encode() + b"\n"
            with suppress(OSError):
                DISK.write_whole(self._path, data, durable=False)
                self._written = status


def read_status(path: Path) -> dict[str, Any]:
    """Return the status that a worker wrote last."""
    try:
        status = parse_json(read_file(path, MAX_STATUS_BYTES), refuse_constant)
    except FileNotFoundError as error:
        raise ConfigurationError(f"{path}: no worker has run on this folder") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    if not isinstance(status, dict) or status.get("format") != FORMAT:
        raise ConfigurationError(f"{path}: is not a status of this version's workers")
    return status


def _roles(worker: Worker, chain: ChainView | None) -> dict[str, dict[str, Any]]:
    seats = worker.seats
    if chain is None or seats is None:
        return {}
    committed = {mined.client for mined in chain.commitments}
    announced = set() if seats.view is None else set(seats.view.announced)
    return {
        str(client): {
            "role": _role(chain, seats, client),
            "address": checksum(worker.hosting.signers[client].address),
            "committed": client in committed,
            "published": client in announced,
        }
        for client in worker.hosting.clients
    }


def _role(chain: ChainView, seats: RoundParticipants, client: ClientId) -> str:
    if chain.registry[client].is_banned_in(chain.round):
        return "banned"
    if client not in seats.active:
        return "idle"
    if client not in seats.serving:
        return "trainer"
    return "sits-out" if client in seats.abstaining else "member"


def _view(worker: Worker) -> dict[str, Any] | None:
    there = worker.present.values()
    positions = [(int(each.phase), each.span.view if each.span else -1) for each in there]
    if not positions:
        return None
    phase, view = max(positions)
    return {"phase": phase, "view": None if view < 0 else view}
