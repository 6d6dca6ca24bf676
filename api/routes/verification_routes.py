"""Verifications: audits that the service runs, how they go, and what they have found."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, cast

import anyio
import anyio.to_thread
from fastapi import APIRouter, Depends, Path, Request, Response
from sse_starlette import EventSourceResponse, ServerSentEvent

from api.http.access import is_foreign_page, permission
from api.http.openapi import OF_DEPLOYMENT, declared
from api.http.parameters import Address, OneChain, refuse_unknown
from api.http.problems import (
    BODY_TOO_LARGE,
    EARLIER_REPORT_REFUSED,
    QUEUE_FULL,
    REPORT_NOT_FOUND,
    REPORTS_UNAVAILABLE,
    STREAMS_EXHAUSTED,
    STREAMS_OF_ADDRESS,
    VERIFICATION_NOT_FOUND,
    VERIFICATION_OVER,
    VERIFICATION_REFUSED,
    VERIFICATION_RUNNING,
    ProblemError,
    problem,
)
from api.http.root_path import root_path_of, to_rooted_json
from api.http.streams import POLL_SECONDS, LastEventId, Streams, streamed
from api.schemas.verifications import (
    VERIFICATION_NAME,
    Verification,
    VerificationLimits,
    VerificationPermission,
    VerificationRequest,
    VerificationsAnswer,
)
from api.verifications.audit_worker import AuditTask
from api.verifications.queue import (
    AlreadyVerifyingError,
    NotRunningError,
    QueueFullError,
    VerificationOrder,
    Verifications,
    read_earlier,
)
from api.verifications.reports import ReportsError
from ledger.audit.earlier_report import EarlierReportError
from ledger.history.paths import DeploymentPath

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api.http.request_view import RequestView
    from api.settings import Settings
    from ledger.history.deployments import ServedDeployment

router = APIRouter(
    prefix="/v1/chains/{chain}/deployments/{address}/verifications",
    tags=["verifications"],
    dependencies=[Depends(refuse_unknown)],
)

VerificationPath = Annotated[
    str,
    Path(
        description="as in the list",
        pattern=VERIFICATION_NAME,
        max_length=28,
        examples=["20260101T000000000Z-5c5c5c5c"],
    ),
]
_OF_ONE = (*OF_DEPLOYMENT, VERIFICATION_NOT_FOUND)
_PRIVATE = {"Cache-Control": "no-store"}
_WORDS = {
    VerificationPermission.OFF: "this service runs no verifications",
    VerificationPermission.TOKEN_NEEDED: "show a bearer token that this service knows",
    VerificationPermission.THIS_MACHINE_ONLY: (
        "no token is set, so only who sits at this machine may begin verifications"
    ),
}


@router.get(
    "",
    summary="Verifications of a deployment",
    operation_id="list_verifications",
    response_model=VerificationsAnswer,
    responses=declared(*OF_DEPLOYMENT, tagged=False),
)
def verifications(request: Request, reading: OneChain, address: Address) -> Response:
    """List verifications, the newest first, and whether the caller may start one."""
    path = _path(reading, reading.deployment(address))
    runs = _verifications(request)
    found, unreadable = runs.all()
    bounds = runs.bounds
    answer = VerificationsAnswer(
        verifications=tuple(one for one in found if _is_of(one, path)),
        unreadable=unreadable,
        permission=permission(request, _settings(request)),
        bounds=VerificationLimits(
            memory_bytes=bounds.memory_bytes,
            cpu_seconds=bounds.cpu_seconds,
            seconds=bounds.seconds,
            waiting=bounds.waiting,
            kept=bounds.kept,
        ),
    )
    return Response(to_rooted_json(request, answer), 200, _PRIVATE, "application/json")


@router.post(
    "",
    summary="Begin a verification",
    operation_id="begin_verification",
    status_code=202,
    response_model=Verification,
    responses=declared(
        *_OF_ONE,
        BODY_TOO_LARGE,
        VERIFICATION_REFUSED,
        VERIFICATION_RUNNING,
        EARLIER_REPORT_REFUSED,
        QUEUE_FULL,
        REPORTS_UNAVAILABLE,
        tagged=False,
    ),
)
def begin(
    request: Request, reading: OneChain, address: Address, asked: VerificationRequest
) -> Response:
    """Start an audit of all ended rounds in a separate process, with bounded resources.

    It needs a token where tokens are set, and else a request from the service's own machine. One
    runs at a time for each deployment; the running one is named in `Link`, as `related`.

    Raises:
        ProblemError: it may not be started, or not now.
    """
    _require_may_begin(request)
    served = reading.deployment(address)
    path = _path(reading, served)
    try:
        entry = _verifications(request).begin(_asked(request, reading, served, asked))
    except AlreadyVerifyingError as error:
        answer = problem(request, VERIFICATION_RUNNING, str(error))
        answer.headers["Link"] = (
            f'<{root_path_of(request)}{path}/verifications/{error.name}>; rel="related"'
        )
        return answer
    except QueueFullError as error:
        raise ProblemError(QUEUE_FULL, str(error)) from error
    except ReportsError as error:
        raise ProblemError(REPORTS_UNAVAILABLE, str(error)) from error
    headers = _PRIVATE | {"Location": root_path_of(request) + entry.links["self"]}
    return Response(to_rooted_json(request, entry), 202, headers, "application/json")


@router.get(
    "/{name}",
    summary="A verification",
    operation_id="read_verification",
    response_model=Verification,
    responses=declared(*_OF_ONE, tagged=False),
)
def verification(
    request: Request, reading: OneChain, address: Address, name: VerificationPath
) -> Response:
    """Report the state of a verification; only a finished one has a verdict."""
    entry = _found(request, _path(reading, reading.deployment(address)), name)
    return Response(to_rooted_json(request, entry), 200, _PRIVATE, "application/json")


@router.delete(
    "/{name}",
    summary="Cancel a verification",
    operation_id="cancel_verification",
    status_code=202,
    response_model=Verification,
    responses=declared(*_OF_ONE, VERIFICATION_REFUSED, VERIFICATION_OVER, tagged=False),
)
def cancel(
    request: Request, reading: OneChain, address: Address, name: VerificationPath
) -> Response:
    """Cancel a verification that waits or runs; it has no verdict, and stays in the list.

    Raises:
        ProblemError: who asks may not, or it is over.
    """
    _require_may_begin(request)
    _found(request, _path(reading, reading.deployment(address)), name)
    try:
        entry = _verifications(request).cancel(name)
    except NotRunningError as error:
        raise ProblemError(VERIFICATION_OVER, str(error)) from error
    return Response(to_rooted_json(request, entry), 202, _PRIVATE, "application/json")


@router.get(
    "/{name}/report",
    summary="The report of a verification",
    operation_id="read_report",
    responses=declared(*_OF_ONE, REPORT_NOT_FOUND, REPORTS_UNAVAILABLE, tagged=False)
    | {
        200: {
            "description": "the bytes that `cmfl audit --report` writes, for `cmfl audit --since`",
            "content": {"application/json": {"schema": {"type": "object"}}},
        }
    },
)
def report(
    request: Request, reading: OneChain, address: Address, name: VerificationPath
) -> Response:
    """Give the whole report: every step's first contradiction, everybody who was caught.

    It is not signed: to build on it is to trust this service.

    Raises:
        ProblemError: there is none, or it is not what was kept.
    """
    entry = _found(request, _path(reading, reading.deployment(address)), name)
    try:
        data = _verifications(request).report(entry)
    except ReportsError as error:
        raise ProblemError(REPORTS_UNAVAILABLE, str(error)) from error
    if data is None:
        raise ProblemError(REPORT_NOT_FOUND, f"verification {name} has no report")
    headers = _PRIVATE | {"Content-Disposition": f'attachment; filename="audit-{name}.json"'}
    return Response(data, 200, headers, "application/json")


@router.get(
    "/{name}/events",
    summary="A verification as it goes on",
    operation_id="follow_verification",
    response_class=EventSourceResponse,
    responses=declared(*_OF_ONE, STREAMS_EXHAUSTED, STREAMS_OF_ADDRESS, tagged=False)
    | {
        200: {
            "description": "events `standing`, each with the whole verification; the `id` is its "
            "`sequence`, and the stream ends with it",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
        204: {"description": "it is over, and the last event was received"},
    },
)
async def events(
    request: Request,
    reading: OneChain,
    address: Address,
    name: VerificationPath,
    last_event_id: LastEventId = None,
) -> Response:
    """Report the state of a verification at each change, up to its end.

    Each event has the whole state, so that a client with `Last-Event-ID` gets only the newest,
    if it is newer than that.
    """
    streams: Streams = request.app.state.streams
    with ExitStack() as reservation:
        reservation.enter_context(streams.reserve(request))
        served = await anyio.to_thread.run_sync(reading.deployment, address)
        path = _path(reading, served)
        known = -1 if last_event_id is None else int(last_event_id)
        first = await anyio.to_thread.run_sync(_found, request, path, name)
        if first.state.is_over and first.sequence <= known:
            return Response(status_code=204, headers=_PRIVATE)

        async def told() -> AsyncIterator[ServerSentEvent]:
            entry, last = first, known
            while True:
                if entry.sequence > last:
                    last = entry.sequence
                    yield ServerSentEvent(
                        data=to_rooted_json(request, entry).decode(),
                        event="standing",
                        id=str(last),
                    )
                if entry.state.is_over or streams.are_ending:
                    return
                await anyio.sleep(POLL_SECONDS)
                entry = await anyio.to_thread.run_sync(_found, request, path, name)

        return streamed(told(), reservation)


def _require_may_begin(request: Request) -> None:
    """Refuse to begin or end work for who may not.

    Raises:
        ProblemError: says what is needed.
    """
    settings = _settings(request)
    granted = permission(request, settings)
    if granted is not VerificationPermission.GRANTED:
        raise ProblemError(VERIFICATION_REFUSED, _WORDS[granted])
    if is_foreign_page(request, settings):
        raise ProblemError(VERIFICATION_REFUSED, "a page of another origin may not ask for this")


def _asked(
    request: Request, reading: RequestView, served: ServedDeployment, asked: VerificationRequest
) -> VerificationOrder:
    """Return the input of a verification's process.

    Raises:
        ProblemError: the earlier verification is none that one can build on.
    """
    settings, runs = _settings(request), _verifications(request)
    path = _path(reading, served)
    since, earlier = None, None
    if asked.since is not None:
        entry = _found(request, path, asked.since)
        try:
            since, earlier = read_earlier(runs, entry, served.ledger, strict=asked.strict)
        except (EarlierReportError, ReportsError) as error:
            raise ProblemError(EARLIER_REPORT_REFUSED, str(error)) from error
    task = AuditTask(
        chain_file=settings.chain_file,
        rpc_url=settings.rpc_url,
        rpc_timeout_seconds=settings.rpc_timeout_seconds,
        chain_id=path.chain.chain_id,
        genesis=path.chain.genesis,
        address=served.ledger.address,
        from_block=served.ledger.from_block,
        blob_folder=settings.blob_folder,
        strict=asked.strict,
        head=None if asked.head is None else bytes.fromhex(asked.head[2:]),
        earlier=earlier,
        memory_bytes=runs.bounds.memory_bytes,
        cpu_seconds=runs.bounds.cpu_seconds,
        rules=settings.rules,
    )
    return VerificationOrder(path, served.run, since, task)


def _path(reading: RequestView, served: ServedDeployment) -> DeploymentPath:
    return DeploymentPath(reading.chain.path, served.manifest.address)


def _is_of(entry: Verification, path: DeploymentPath) -> bool:
    return (entry.chain, entry.address) == (path.chain.name, path.address)


def _found(request: Request, path: DeploymentPath, name: str) -> Verification:
    """Return a verification of a deployment.

    Raises:
        ProblemError: there is none of this name.
    """
    entry = _verifications(request).find(name)
    if entry is None or not _is_of(entry, path):
        raise ProblemError(VERIFICATION_NOT_FOUND, f"there is no verification {name} of it")
    return entry


def _verifications(request: Request) -> Verifications:
    return cast("Verifications", request.app.state.verifications)


def _settings(request: Request) -> Settings:
    return cast("Settings", request.app.state.settings)
