"""The app: routes, one chain and one blob store behind them, and errors as problems."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from api.http import openapi
from api.http.access import Access
from api.http.caching import AnswersFromKept
from api.http.docs_page import HEADERS, docs_page
from api.http.head import HeadAsGet
from api.http.kept import KeptAnswers
from api.http.observed import Metrics, Observed
from api.http.problems import (
    CHAIN_DAMAGED,
    CHAIN_NOT_SERVED,
    CHAIN_UNREACHABLE,
    CURSOR_INVALID,
    MAX_SHOWN,
    REQUEST_INVALID,
    FieldError,
    Kind,
    ProblemError,
    plain_problem,
    problem,
)
from api.http.safe_headers import SafeHeaders
from api.routes import (
    blobs,
    clients,
    deployments,
    events,
    evidence,
    proofs,
    rounds,
    series,
    service,
    web,
)
from ledger.chain.ports import ChainDamagedError, ChainUnreachableError, NotServedError
from ledger.history.cursors import CursorError
from ledger.history.now import Histories
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api.settings import Settings

_log = logging.getLogger(__name__)


def create_app(settings: Settings) -> FastAPI:
    """Return the service as an ASGI app; nothing is opened before the first request.

    Args:
        settings: where it reads.

    Returns:
        The app. It never writes, and takes no lock.
    """
    histories = Histories(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        histories.close()

    app = FastAPI(
        title=openapi.TITLE,
        version=service.package_version(),
        description=openapi.DESCRIPTION,
        openapi_tags=openapi.TAGS,
        # The usual pages load their scripts from elsewhere; ours is below.
        docs_url=None,
        redoc_url=None,
        # A slash too many is another path, not a detour.
        redirect_slashes=False,
        # Nothing leaves this process, whatever the environment says.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        lifespan=lifespan,
    )
    kept = KeptAnswers()
    app.state.histories, app.state.kept = histories, kept
    app.state.streams = events.Streams(settings.most_streams)
    for routes in (
        service,
        deployments,
        rounds,
        clients,
        evidence,
        series,
        events,
        proofs,
        blobs,
        web,
    ):
        app.include_router(routes.router)
    _add_document(app)
    _add_errors(app, settings)
    metrics = Metrics()
    app.include_router(metrics.router())
    # The last is the outermost.
    app.add_middleware(AnswersFromKept, histories=histories, kept=kept)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.allowed_origins,
            allow_methods=("GET", "HEAD"),
            allow_headers=("Authorization", "If-None-Match", "Last-Event-ID"),
            expose_headers=("ETag", "X-As-Of-Block"),
        )
    app.add_middleware(Access, tokens=settings.tokens, per_minute=settings.requests_per_minute)
    app.add_middleware(HeadAsGet)
    app.add_middleware(Observed, metrics=metrics, logs=settings.logs_requests)
    app.add_middleware(SafeHeaders)
    return app


def _add_document(app: FastAPI) -> None:
    def made() -> dict[str, Any]:
        if not app.openapi_schema:
            app.openapi_schema = openapi.document(app)
        return app.openapi_schema

    app.openapi = made  # type: ignore[method-assign]

    @app.get("/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        return HTMLResponse(docs_page(app.openapi()), headers=HEADERS)


def _add_errors(app: FastAPI, settings: Settings) -> None:
    @app.exception_handler(ProblemError)
    async def refused(request: Request, error: ProblemError) -> Response:
        return problem(request, error.kind, str(error), error.errors)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        errors = [_field_error(entry) for entry in error.errors()]
        first = errors[0]
        detail = f"{first.place} {first.name}: {first.detail}"
        return problem(request, REQUEST_INVALID, detail, errors)

    @app.exception_handler(CursorError)
    async def bad_cursor(request: Request, error: CursorError) -> Response:
        return problem(request, CURSOR_INVALID, str(error))

    @app.exception_handler(ChainError)
    async def unreadable(request: Request, error: ChainError) -> Response:
        _log.warning("%s: %s", request.url.path, error)
        if settings.rpc_url is not None:  # its address is nobody's business
            return problem(request, _kind(error), "the node does not answer as it should")
        return problem(request, _kind(error), str(error).replace(f"{settings.home}/", ""))

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        detail = {404: "there is nothing at this path", 405: "only GET is answered here"}
        told = detail.get(error.status_code, str(error.detail))
        return plain_problem(request, error.status_code, told, error.headers)

    @app.exception_handler(Exception)
    async def failed(request: Request, _: Exception) -> Response:
        # The server logs the traceback; the answer has none of it.
        return plain_problem(request, 500, "this is a fault of the service; its log tells more")


def _kind(error: ChainError) -> Kind:
    match error:
        case ChainDamagedError():
            return CHAIN_DAMAGED
        case ChainUnreachableError():
            return CHAIN_UNREACHABLE
        case NotServedError():
            return CHAIN_NOT_SERVED
        case _:
            return CHAIN_UNREACHABLE


def _field_error(entry: dict[str, Any]) -> FieldError:
    place, *names = (str(part) for part in entry["loc"])
    name = ".".join(names) or place
    return FieldError(place=place[:20], name=name[:100], detail=entry["msg"][:MAX_SHOWN])
