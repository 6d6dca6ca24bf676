"""The service: its ASGI app of routes, middleware and errors as problems, and its server."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache, partial
from http import HTTPStatus

import anyio.to_thread
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import Match

from api.federation import FederationMonitor
from api.histories import HistoryService
from api.http import answers as kinds
from api.http import endpoints, limits
from api.http.answers import ProblemError, ProblemKind, plain_problem, problem
from api.http.server import GracefulServer, bounded, listening_socket, run_server
from api.http.streams import Streams
from api.routes import proofs, rounds, runs, service, verifications, web
from api.schemas import MAX_SHOWN, FieldError
from api.settings import Settings
from ledger.chain import ports
from ledger.history.fields import CursorError
from ledger.history.history import RoundRangeError, UnknownClientError, UnknownRoundError
from ledger.protocol.errors import BlobError, BlobMissingError, ChainError, ConfigurationError

_NAMED: dict[type[Exception], ProblemKind] = {
    CursorError: kinds.CURSOR_INVALID,
    UnknownClientError: kinds.CLIENT_NOT_FOUND,
    UnknownRoundError: kinds.ROUND_NOT_FOUND,
    RoundRangeError: kinds.REQUEST_INVALID,
}
_OF_CHAIN: dict[type[ChainError], ProblemKind] = {
    ports.ChainDamagedError: kinds.CHAIN_DAMAGED,
    ports.ChainMovedError: kinds.CHAIN_MOVED,
    ports.ChainUnreachableError: kinds.CHAIN_UNREACHABLE,
    ports.NotServedError: kinds.CHAIN_NOT_SERVED,
}
"""Problems of the errors of a chain: the first whose type an error has."""
_log = logging.getLogger(__name__)


def create_app(settings: Settings) -> FastAPI:
    """Return the service as an ASGI app: it opens nothing before a request, and never writes."""
    app = FastAPI(
        title=endpoints.TITLE,
        version=service.package_version(),
        description=endpoints.DESCRIPTION,
        openapi_tags=endpoints.TAGS,
        # The usual pages load scripts from other hosts; ours is below.
        docs_url=None,
        redoc_url=None,
        # A path with another slash is another path, not a redirect.
        redirect_slashes=False,
        # Nothing leaves this process, whatever the environment says.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        lifespan=_lifespan,
    )
    app.state.settings = settings
    app.state.histories = HistoryService(settings)
    app.state.federations = FederationMonitor(settings)
    app.state.streams = Streams(settings.most_streams, settings.most_streams_of_address)
    app.state.verifications = verifications.Verifications(settings.verification_seconds)
    for module in (service, rounds, runs, proofs, verifications, web):
        # include_router would build the schemas of all routes once more: half a second.
        app.router.routes += module.ROUTES
    app.openapi = cache(partial(endpoints.document, app, settings.root_path))  # type: ignore[method-assign]
    _add_errors(app, settings)
    _add_middleware(app, settings)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    # Background work ends before its sources close.
    await anyio.to_thread.run_sync(app.state.verifications.close)
    app.state.histories.close()


def _add_middleware(app: FastAPI, settings: Settings) -> None:
    """Add the middleware and the route of its metrics; what is added last is outermost."""
    metrics = limits.Metrics()
    app.get("/metrics", include_in_schema=False)(metrics.exposition)
    app.add_middleware(limits.BodyLimit)
    app.add_middleware(limits.Access, settings=settings)
    # Outside of access control: a preflight request has no token, and a page may read refusals.
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.allowed_origins,
            allow_methods=("GET", "HEAD", "POST", "DELETE"),
            allow_headers=(
                *("Authorization", "Content-Type", "If-None-Match", "If-Range"),
                *("Last-Event-ID", "Range"),
            ),
            expose_headers=("Content-Range", "ETag", "Link", "Location", "X-As-Of-Block"),
        )
    app.add_middleware(limits.HeadAsGet)
    # Where every request for data shows a token, a page of another site cannot read anything.
    needs_token = settings.tokens and not settings.reading_is_open
    app.add_middleware(limits.HostCheck, names=None if needs_token else settings.allowed_hosts)
    app.add_middleware(limits.MetricsMiddleware, metrics=metrics, logs=settings.logs_requests)
    app.add_middleware(limits.SafeHeaders)


def _add_errors(app: FastAPI, settings: Settings) -> None:
    @app.exception_handler(ProblemError)
    async def refused(request: Request, error: ProblemError) -> Response:
        return problem(request, error.kind, str(error), error.errors)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        errors = []
        for entry in error.errors():
            place, *names = (str(part) for part in entry["loc"])
            name, rule = ".".join(names) or place, entry["msg"].removeprefix("Value error, ")
            is_json = "json" in request.headers.get("content-type", "")
            if entry["type"] == "model_attributes_type" and not names and not is_json:
                place, name, rule = "header", "Content-Type", "must be application/json"
            errors.append(FieldError(place=place[:20], name=name[:100], detail=rule[:MAX_SHOWN]))
        first = errors[0]
        value = " ".join(dict.fromkeys((first.place, first.name)))
        detail = f"{value}: {first.detail}"
        return problem(request, kinds.REQUEST_INVALID, detail, errors)

    async def named(request: Request, error: Exception) -> Response:
        return problem(request, _NAMED[type(error)], str(error))

    for kind in _NAMED:
        app.add_exception_handler(kind, named)

    @app.exception_handler(ChainError)
    async def unreadable(request: Request, error: ChainError) -> Response:
        _log.warning("%s: %s", request.url.path, error)
        found = (kind for each, kind in _OF_CHAIN.items() if isinstance(error, each))
        detail = str(error).replace(f"{settings.home}/", "")
        if settings.rpc_url is not None:  # the node's address may hold a secret
            detail = "the node does not answer as it should"
            if isinstance(error, ports.IncompleteLogsError):
                detail = "the node's logs do not match the contract's state"
        return problem(request, next(found, kinds.CHAIN_UNREACHABLE), detail)

    @app.exception_handler(BlobError)
    async def unavailable(request: Request, error: BlobError) -> Response:
        is_missing = isinstance(error, BlobMissingError)
        kind = kinds.BLOB_NOT_FOUND if is_missing else kinds.BLOB_DAMAGED
        return problem(request, kind, str(error))

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        if error.status_code == HTTPStatus.BAD_REQUEST:
            # FastAPI raises this for a body that is not UTF-8, or has a number of 5,000 digits.
            detail = "body: must be JSON in UTF-8, without huge numbers"
            return problem(request, kinds.REQUEST_INVALID, detail)
        if error.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            return problem(request, kinds.BODY_TOO_LARGE, kinds.BODY_RULE)
        headers = dict(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            # The router names the methods of the first route only.
            headers["Allow"] = ", ".join(_methods(app, request))
        return plain_problem(request, error.status_code, headers=headers)

    @app.exception_handler(Exception)
    async def failed(request: Request, _: Exception) -> Response:
        # The server logs the traceback; the answer has none of it.
        return plain_problem(request, 500, "this is an internal error of the service; see its log")


def serve(
    settings: Settings, host: str, port: int, on_listening: Callable[[str], None] | None = None
) -> None:
    """Serve a home, with or without a chain, until the process is stopped; port 0 is a free one."""
    if not settings.home.is_dir():
        raise ConfigurationError(f"there is no home at {settings.home}")
    with listening_socket(host, port) as listener:
        hosts = (*settings.allowed_hosts, host)
        server = server_for(settings.model_copy(update={"allowed_hosts": hosts}))
        run_server(server, listener, on_listening)


def server_for(settings: Settings) -> GracefulServer:
    """Return a server that has not started yet, with limits on the resources of a client."""
    app = create_app(settings)
    proxies = [str(network) for network in settings.trusted_proxies]
    config = bounded(app, proxy_headers=bool(proxies), forwarded_allow_ips=proxies)
    return GracefulServer(config, app.state.streams.end)


def _methods(app: FastAPI, request: Request) -> list[str]:
    def is_answered(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(scope)[0] is Match.FULL for route in app.router.routes)

    methods = [method for method in ("GET", "POST", "DELETE") if is_answered(method)]
    return [*methods, "HEAD"] if "GET" in methods else methods
