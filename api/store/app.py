"""The store as an ASGI app: blobs and mail of one folder, and errors as problems."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus

from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.http.metrics import Metrics, MetricsMiddleware
from api.http.middleware import SafeHeaders
from api.http.problems import CHAIN_UNREACHABLE, ProblemError, plain_problem, problem
from api.store.blob_routes import BlobRoutes
from api.store.charges import Charges, charges_file
from api.store.mail_routes import MailRoutes
from api.store.permissions import PermissionCache
from api.store.receiver import TOO_SLOW, Receiver, disk_problem, remove_unfinished
from api.store.retention import PinnedBlobs, Retention
from api.store.store_settings import StoreSettings
from ledger.chain.contract.committee_ledger import CommitteeLedger
from ledger.protocol.errors import ChainError, CmflError
from ledger.storage.blobs import FolderBlobs
from ledger.storage.folder import FolderObjects
from ledger.storage.mailbox import Mailbox
from ledger.storage.uploads import SCHEME

DRAINED_BYTES = 1 << 20
"""Bytes of a refused body that are still read, so that its sender hears the reason."""

DRAINING_SECONDS = 2.0
POLL_SECONDS = 5.0
"""Interval at which the store asks whether a round has ended, so that old payloads may go."""

_NO_STORE = {"Cache-Control": "no-store"}
_log = logging.getLogger(__name__)


def create_store(
    settings: StoreSettings,
    ledger: CommitteeLedger,
    epoch: bytes,
    clock: Callable[[], float] = time.monotonic,
    pinned: PinnedBlobs = frozenset,
) -> Starlette:
    """Return the store as an ASGI app; no other may serve the folder meanwhile.

    Args:
        settings: its folder, which must be there, and its bounds.
        ledger: the contract whose clients may write.
        epoch: random bytes, others each time.
        clock: seconds that only grow.
    """
    remove_unfinished(settings.folder)
    permissions = PermissionCache(ledger, clock)
    charges = Charges(charges_file(settings.folder, permissions.domain))
    receiver = Receiver(settings, permissions, charges)
    stored = FolderBlobs(settings.folder)
    blobs = BlobRoutes(receiver, stored, clock)
    mail = MailRoutes(receiver, Mailbox(FolderObjects(settings.folder)), epoch)
    retention = None
    if settings.keep_rounds is not None:
        retention = Retention(ledger, stored, charges, settings.keep_rounds, pinned)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        with contextlib.closing(charges):
            async with _removal(retention):
                yield

    metrics = Metrics()
    board = "/mail/{chain}/{contract}/{salt}/{round}/{kind}"
    app = Starlette(
        routes=[
            Route("/health", _health),
            Route("/metrics", lambda _: metrics.exposition()),
            Route(board, mail.get),
            Route(f"{board}/{{digest}}", mail.put, methods=["PUT"]),
            Route("/{prefix}/{digest}", blobs.get, methods=["GET"]),
            Route("/{prefix}/{digest}", blobs.put, methods=["PUT"]),
        ],
        # The first is the outermost.
        middleware=[
            Middleware(SafeHeaders),
            Middleware(MetricsMiddleware, metrics=metrics, logs=settings.logs_requests),
            Middleware(_ErrorsAsProblems, realm=next(iter(settings.public_urls), "")),
        ],
        exception_handlers={HTTPException: _http_error, Exception: _internal_error},
        lifespan=lifespan,
    )
    # A slash too many is another path, not a detour.
    app.router.redirect_slashes = False
    return app


async def _health(_: Request) -> Response:
    return PlainTextResponse("ok\n", headers=_NO_STORE)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "it is registered for these"
    details = {404: "there is nothing at this path", 405: "this method is not answered here"}
    detail = details.get(error.status_code, HTTPStatus(error.status_code).phrase)
    return plain_problem(request, error.status_code, detail, error.headers)


async def _internal_error(request: Request, _: Exception) -> Response:
    # The server logs the traceback; the answer has none of it.
    return plain_problem(request, 500, "this is a fault of the store; its log has the reason")


@contextlib.asynccontextmanager
async def _removal(retention: Retention | None) -> AsyncIterator[None]:
    """Remove what is old in the background, if there is retention."""
    if retention is None:
        yield
        return
    task = asyncio.create_task(_remove_old(retention))
    yield
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def _remove_old(retention: Retention) -> None:
    """Remove what is old whenever a round has ended, until cancelled."""
    while True:
        try:
            await to_thread.run_sync(retention.remove_old)
        except (CmflError, OSError) as error:
            _log.warning("old payloads and mail cannot be removed now: %s", error)
        await asyncio.sleep(POLL_SECONDS)


class _ErrorsAsProblems:
    """Answers errors with problems, and lets a client that is still sending hear of them."""

    def __init__(self, app: ASGIApp, realm: str) -> None:
        self._app = app
        self._challenge = f'{SCHEME} realm="{realm}"'

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request, body = Request(scope), _Body(receive)
        try:
            await self._app(scope, body.receive, send)
        except ProblemError as error:
            answer = problem(request, error.kind, str(error))
            body.is_incomplete &= error.kind is not TOO_SLOW
        except ChainError as error:
            _log.warning("the chain cannot be read: %s", error)
            answer = problem(request, CHAIN_UNREACHABLE, "the write permissions are unknown now")
        except OSError as error:
            _log.warning("%s: %s", error.filename, error.strerror)
            refusal = disk_problem(error)
            answer = problem(request, refusal.kind, str(refusal))
        else:
            return
        if answer.status_code == HTTPStatus.UNAUTHORIZED:
            answer.headers["WWW-Authenticate"] = self._challenge
        if scope["method"] == "PUT":
            answer.headers["Connection"] = "close"
            await body.drain()
        await answer(scope, receive, send)


class _Body:
    """A request's body, of which a route may have read a part.

    Attributes:
        is_incomplete: whether there is more of it to wait for.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.is_incomplete = True

    async def receive(self) -> Message:
        """Return the next part, and note the last."""
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self.is_incomplete = False
        return message

    async def drain(self) -> None:
        """Read the rest of it, but not much and not for long."""
        remaining = DRAINED_BYTES
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAINING_SECONDS):
                while self.is_incomplete and remaining > 0:
                    remaining -= len((await self.receive()).get("body", b""))
