"""Audits on request: POST starts one, GET returns its state and its report.

An audit runs the function of `cmfl audit` over its own view of chain and blobs, in a process with
limits. One runs at a time. The newest reports stay in memory until the service ends.
"""

from __future__ import annotations

import hashlib
import os
import resource
import secrets
import signal
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from multiprocessing.connection import Connection
from typing import Annotated, Any

from fastapi import Path, Response
from pydantic import Field

from api.histories import open_chain
from api.http import answers as kinds
from api.http.answers import ProblemError, RequestView, problem, root_path_of, to_rooted_json
from api.http.endpoints import OF_DEPLOYMENT, Address, OneChain, of_deployment, success
from api.http.limits import VerificationPermission, is_foreign_page, permission
from api.schemas import Schema
from api.settings import Settings
from ledger.audit.anchors import MAX_REPORT_BYTES, report_bytes
from ledger.audit.engine import AuditOptions, audit
from ledger.audit.report import AuditOutcome, AuditReport
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.distances import fast_distances
from ledger.history.fields import ChainPath, DeploymentPath, Digest32, Eip55, Links, Rfc3339, doc
from ledger.history.round import read_run
from ledger.io.processes import Child, follow_parent, start_child
from ledger.io.user_code import sources_of
from ledger.protocol.errors import ChainError
from ledger.protocol.types import Digest
from ledger.storage.blobs import FolderBlobs

KEPT = 16
"""Audits whose state and report are kept; all reports together have MAX_REPORT_BYTES at most."""
EXIT_SECONDS = 5  # from an audit's last byte to the end of its process, on a loaded machine
VerificationName = Annotated[
    str, Field(pattern=r"^[0-9a-f]{16}$", max_length=16, examples=["5c5c5c5c5c5c5c5c"])
]


class VerificationState(StrEnum):
    """State of an audit; only a finished one has an outcome."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"


class WhyStopped(StrEnum):
    """Reason why an audit has no outcome."""

    MEMORY = "memory"
    SECONDS = "seconds"
    CHAIN = "chain"
    FAULT = "fault"


_TOO_LITTLE_MEMORY, _NO_CHAIN = 71, 72  # exit codes of the process that audits
_WHY = {
    _TOO_LITTLE_MEMORY: WhyStopped.MEMORY,
    _NO_CHAIN: WhyStopped.CHAIN,
    -signal.SIGXCPU: WhyStopped.SECONDS,
}
"""By the exit code of an audit's process."""


class RequestedAudit(Schema):
    """An audit that this service ran or runs."""

    verification: VerificationName
    chain: Annotated[str, Field(max_length=90, examples=["131277322940537-5c5c5c5c"])]
    address: Eip55
    strict: Annotated[bool, Field(examples=[False])]
    links: Links
    begun_at: Rfc3339
    ended_at: Rfc3339 = None
    state: Annotated[VerificationState, Field(examples=["finished"])] = VerificationState.RUNNING
    why: Annotated[WhyStopped | None, doc("why a stopped one has no outcome")] = None
    outcome: Annotated[AuditOutcome | None, Field(examples=["passed"])] = None
    report_sha256: Digest32 | None = None


class VerificationsAnswer(Schema):
    """Audits of a deployment, the newest first, and the permission to start another."""

    verifications: tuple[RequestedAudit, ...]
    permission: Annotated[VerificationPermission, Field(examples=["granted"])]


class VerificationRequest(Schema):
    """Request for an audit."""

    strict: Annotated[bool, doc("a remark makes it incomplete", strict=True, examples=[False])] = (
        False
    )
    head: Annotated[Digest32 | None, doc("a head of this run that you have kept, of any round")] = (
        None
    )


@dataclass(frozen=True, slots=True)
class AuditTask:
    """One audit; its limits are in the settings."""

    settings: Settings
    chain: ChainPath
    address: str
    from_block: int
    strict: bool = False
    head: str | None = None


def run_task(task: AuditTask, out: Connection) -> None:
    """Audit within the limits, and send outcome and report; without them, exit with a code."""
    follow_parent()
    limit_resources(task.settings)
    try:
        report = run_audit(task)
        data = report_bytes(report)
    except MemoryError:
        raise SystemExit(_TOO_LITTLE_MEMORY) from None
    except ChainError:
        raise SystemExit(_NO_CHAIN) from None
    out.send_bytes(str(report.outcome).encode())
    out.send_bytes(data)


def limit_resources(settings: Settings) -> None:
    """Bound the memory and time of this process; requests come first."""
    memory, seconds = settings.verification_memory_bytes, settings.verification_seconds
    # Not the address space: a chain file, libraries and threads reserve much and use little of it.
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + EXIT_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(5)


def run_audit(task: AuditTask) -> AuditReport:
    """Return the report of an audit over its own view of chain and blobs."""
    settings = task.settings
    with closing(open_chain(settings, task.chain)) as chain:
        ledger = CommitteeLedger(chain, task.address, task.from_block)
        blobs = FolderBlobs(settings.blob_folder)
        document = read_run(blobs, ledger.deployment().config) if settings.rules else None
        rules = () if document is None else sources_of(document.parameters, settings.rules)
        options = AuditOptions(distances=fast_distances(1), rules=rules)
        head = None if task.head is None else Digest(bytes.fromhex(task.head[2:]))
        return audit(ledger, blobs, options, head=head, strict=task.strict)


class Verifications:
    """The audits of one service, one at a time; safe to share between threads."""

    def __init__(
        self, seconds: float, target: Callable[[AuditTask, Connection], None] = run_task
    ) -> None:
        self._seconds, self._target = seconds, target
        self._lock = threading.Lock()
        self._all: dict[str, tuple[RequestedAudit, bytes]] = {}
        self._running: tuple[str, Child, threading.Thread] | None = None

    def begin(self, task: AuditTask) -> tuple[RequestedAudit, bool]:
        """Start an audit, unless one runs; return the running one, and whether it is new."""
        with self._lock:
            if self._running is not None:
                return self._all[self._running[0]][0], False
            name = secrets.token_hex(8)
            own = f"{DeploymentPath(task.chain, task.address)}/verifications/{name}"
            entry = RequestedAudit(
                verification=name,
                chain=task.chain.name,
                address=task.address,
                strict=task.strict,
                links={"self": own, "report": f"{own}/report"},
                begun_at=_now(),
            )
            child = start_child(self._target, task)
            watching = threading.Thread(target=self._watch, args=(name, child))
            self._all[name], self._running = (entry, b""), (name, child, watching)
            watching.start()
            return entry, True

    def of(self, chain: ChainPath, address: str) -> dict[str, tuple[RequestedAudit, bytes]]:
        """Return the audits of a deployment with their reports by name, the newest first."""
        with self._lock:
            entries = [*reversed(self._all.items())]
        place = chain.name, address
        return {name: one for name, one in entries if (one[0].chain, one[0].address) == place}

    def close(self) -> None:
        with self._lock:
            running = self._running
        if running is not None:
            with suppress(ValueError):  # it has just ended
                running[1].process.kill()
            running[2].join()

    def _watch(self, name: str, child: Child) -> None:
        """Wait for the report or the end of an audit's process."""
        report, changes = b"", dict[str, Any](state=VerificationState.STOPPED)
        try:
            if child.connection.poll(self._seconds):
                outcome = AuditOutcome(child.connection.recv_bytes(100).decode())
                report = child.connection.recv_bytes(MAX_REPORT_BYTES)
                digest = f"0x{hashlib.sha256(report).hexdigest()}"
                changes = {"outcome": outcome, "report_sha256": digest}
                changes["state"] = VerificationState.FINISHED
            else:
                changes["why"] = WhyStopped.SECONDS
        except (EOFError, OSError, ValueError):
            changes["why"] = _WHY.get(child.exit_code(EXIT_SECONDS) or 0, WhyStopped.FAULT)
        child.close()
        with self._lock:
            entry = self._all[name][0].model_copy(update=changes | {"ended_at": _now()})
            self._all[name], self._running = (entry, report), None
            sizes = {one: len(data) for one, (_, data) in self._all.items()}
            while len(sizes) > KEPT or sum(sizes.values()) > MAX_REPORT_BYTES:
                oldest = next(iter(sizes))
                del sizes[oldest], self._all[oldest]


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


_verifications = of_deployment("/verifications", "verifications")
ROUTES = _verifications.routes
_Name = Annotated[VerificationName, Path(description="as in the list")]
_PRIVATE = {"Cache-Control": "no-store"}
_REFUSALS = {
    VerificationPermission.OFF: "this service runs no verifications",
    VerificationPermission.TOKEN_NEEDED: "show a bearer token of this service",
    VerificationPermission.THIS_MACHINE_ONLY: "no token is set, so only a request from the "
    "service's own machine starts a verification",
}


@_verifications.answers(
    "", "Verifications of a deployment", VerificationsAnswer, OF_DEPLOYMENT, tagged=False
)
def list_verifications(reading: OneChain, address: Address) -> Response:
    """List verifications, the newest first, and whether the caller may start one."""
    granted = permission(reading.request, reading.request.app.state.settings)
    found = tuple(entry for entry, _ in _found(reading, address).values())
    return _json(reading, VerificationsAnswer(verifications=found, permission=granted))


@_verifications.answers(
    "",
    "Start a verification",
    RequestedAudit,
    (*OF_DEPLOYMENT, kinds.BODY_TOO_LARGE, kinds.VERIFICATION_REFUSED, kinds.VERIFICATION_RUNNING),
    tagged=False,
    methods=["POST"],
    status_code=202,
)
def begin_verification(reading: OneChain, address: Address, asked: VerificationRequest) -> Response:
    """Start an audit of all ended rounds in a separate process, with bounded resources.

    It needs a token where tokens are set, and else a request from the service's own machine. One
    runs at a time; a refusal names the running one in `Link`, as `related`.
    """
    request = reading.request
    settings: Settings = request.app.state.settings
    if (granted := permission(request, settings)) is not VerificationPermission.GRANTED:
        raise ProblemError(kinds.VERIFICATION_REFUSED, _REFUSALS[granted])
    if is_foreign_page(request, settings):
        raise ProblemError(kinds.VERIFICATION_REFUSED, "another origin's page may not start one")
    path, ledger = reading.chain.path, reading.deployment(address).ledger
    task = AuditTask(settings, path, ledger.address, ledger.from_block, asked.strict, asked.head)
    entry, is_new = request.app.state.verifications.begin(task)
    place = root_path_of(request) + entry.links["self"]
    if not is_new:
        detail = f"verification {entry.verification} runs; one runs at a time"
        answer = problem(request, kinds.VERIFICATION_RUNNING, detail)
        answer.headers["Link"] = f'<{place}>; rel="related"'
        return answer
    return _json(reading, entry, 202, Location=place)


_OF_ONE = (*OF_DEPLOYMENT, kinds.VERIFICATION_NOT_FOUND)


@_verifications.answers("/{name}", "A verification", RequestedAudit, _OF_ONE, tagged=False)
def read_verification(reading: OneChain, address: Address, name: _Name) -> Response:
    """Return the state of a verification; only a finished one has an outcome."""
    entry, _ = _one(reading, address, name)
    return _json(reading, entry)


@_verifications.answers(
    "/{name}/report",
    "The report of a verification",
    None,
    (*_OF_ONE, kinds.REPORT_NOT_FOUND),
    media=success(
        "application/json",
        "the bytes that `cmfl audit --report` writes, for `cmfl audit --since`",
        type="object",
    ),
    tagged=False,
)
def read_report(reading: OneChain, address: Address, name: _Name) -> Response:
    """Return the whole report. It is not signed: to build on it is to trust this service."""
    _, data = _one(reading, address, name)
    if not data:
        raise ProblemError(kinds.REPORT_NOT_FOUND, f"verification {name} has no report")
    headers = _PRIVATE | {"Content-Disposition": f'attachment; filename="audit-{name}.json"'}
    return Response(data, 200, headers, "application/json")


def _found(reading: RequestView, address: str) -> dict[str, tuple[RequestedAudit, bytes]]:
    audits: Verifications = reading.request.app.state.verifications
    return audits.of(reading.chain.path, reading.deployment(address).ledger.address)


def _one(reading: RequestView, address: str, name: str) -> tuple[RequestedAudit, bytes]:
    found = _found(reading, address).get(name)
    if found is None:
        raise ProblemError(kinds.VERIFICATION_NOT_FOUND, f"there is no verification {name}")
    return found


def _json(reading: RequestView, answer: Schema, status: int = 200, **headers: str) -> Response:
    body = to_rooted_json(reading.request, answer)
    return Response(body, status, _PRIVATE | headers, "application/json")
