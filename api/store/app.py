"""The store as an ASGI app: blobs and mail of one folder, with retention."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import socket
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from http import HTTPStatus
from urllib.parse import urlsplit

import uvicorn
from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.http.answers import CHAIN_UNREACHABLE, ProblemError, plain_problem, problem
from api.http.limits import HttpMiddleware, Metrics, MetricsMiddleware, SafeHeaders
from api.http.server import bounded_server, listening_socket, run_server, url_of
from api.settings import StoreSettings
from api.store import receiver as uploads
from api.store.routes import BlobRoutes, MailRoutes
from ledger.actors.retention import BlobUse, PayloadRemover, blobs_of_round
from ledger.chain.contract.event_log import EventLog
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.round_ledger import last_ended
from ledger.io.home import sole_process
from ledger.io.http import base_url
from ledger.protocol.errors import BlobError, ChainError, CmflError, ConfigurationError
from ledger.protocol.types import Digest
from ledger.storage.blobs import FolderBlobs, FolderObjects
from ledger.storage.http import SCHEME, require_plain_url
from ledger.storage.mailbox import Mailbox, remove_mail

PinnedBlobs = Callable[[], Collection[Digest]]


class Retention:
    """Removes the uploads of all but the newest rounds, except uploads that a record names.

    A round has ended when its end is final: a reorganisation may open it again, with its payloads.
    Only the charges list the uploads of a round without a decision.
    """

    def __init__(
        self,
        ledger: CommitteeLedger,
        blobs: FolderBlobs,
        charges: uploads.Charges,
        rounds: int,
        pinned: PinnedBlobs = frozenset,
    ) -> None:
        self._ledger, self._blobs = ledger, blobs
        self._log = EventLog()
        self._charges = charges
        self._rounds = rounds
        self._pinned_by_others = pinned
        self._pinned: set[Digest] = set()
        self._remover = PayloadRemover(ledger, blobs, rounds, self._pinned)
        self._ended = 0

    def remove_old(self) -> None:
        chain = self._ledger.chain
        final = self._log.up_to(self._ledger, chain.block(chain.finalized()))
        ended = last_ended(final.state())
        if ended <= self._ended:
            return
        # Charges are read now, not when each round ended: clients may write to it for one round
        # more, and slowly. The open round may need blobs of an old one.
        newest, charged = ended - self._rounds, self._charges.rounds()
        self._pinned.clear()
        self._pinned.update(self._pinned_by_others())
        self._pinned.update(*(self._charges.blobs_of(n) for n in charged if n > newest))
        for number in charged:
            if number <= newest:
                named = blobs_of_round(final, self._blobs, number)
                # Without its record the vectors of a round are unknown, and its uploads stay.
                uses = None if named is None else {blob.use for blob in named}
                is_known = uses is None or uses & {BlobUse.PAYLOAD, BlobUse.VECTOR}
                uploads = self._charges.blobs_of(number) if is_known else ()
                self._remover.ended(number, uploads, final)
        self._remover.ended(ended, (), final)
        self._ended = ended
        for number in self._charges.rounds():
            # A round that clients can still write to keeps its charges.
            if number <= min(newest, ended - 2):
                self._charges.forget(number)
        remove_mail(self._blobs.folder, final.domain(), newest + 1)


DRAINED_BYTES = 1 << 20  # of a refused body that are read: its sender then receives the reason
DRAINING_SECONDS = 2.0
POLL_SECONDS = 5.0  # between questions whether a round has ended, so that old payloads may go
STORE_LOCK = "store.lock"
_log = logging.getLogger(__name__)


def create_store(
    settings: StoreSettings, ledger: CommitteeLedger, pinned: PinnedBlobs = frozenset
) -> Starlette:
    """Return the store as an ASGI app; its folder must exist, and no other app may serve it."""
    uploads.remove_unfinished(settings.folder)
    permissions = uploads.PermissionCache(ledger)
    charges = uploads.Charges(uploads.charges_file(settings.folder, permissions.domain))
    receiver = uploads.Receiver(settings, permissions, charges)
    stored = FolderBlobs(settings.folder)
    blobs = BlobRoutes(receiver, stored)
    mail = MailRoutes(receiver, Mailbox(FolderObjects(settings.folder)))
    retention = None
    if settings.keep_rounds is not None:
        retention = Retention(ledger, stored, charges, settings.keep_rounds, pinned)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        with contextlib.closing(charges):
            task = None if retention is None else asyncio.create_task(_remove_old(retention))
            yield
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    metrics = Metrics()
    board = "/mail/{chain}/{contract}/{salt}/{round}/{kind}"
    app = Starlette(
        routes=[
            Route("/health", _health),
            Route("/metrics", lambda _: metrics.exposition()),
            Route(board, mail.get),
            Route(f"{board}/{{digest}}", mail.put, methods=["PUT"]),
            Route("/{prefix}/{digest}", blobs.answer, methods=["GET", "PUT"]),
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
    # A path with another slash is another path, not a redirect.
    app.router.redirect_slashes = False
    return app


async def _health(_: Request) -> Response:
    return PlainTextResponse("ok\n", headers={"Cache-Control": "no-store"})


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "it is registered for these"
    return plain_problem(request, error.status_code, headers=error.headers)


async def _internal_error(request: Request, _: Exception) -> Response:
    # The server logs the traceback; the answer has none of it.
    return plain_problem(request, 500, "this is a fault of the store; its log has the reason")


async def _remove_old(retention: Retention) -> None:
    while True:
        try:
            await to_thread.run_sync(retention.remove_old)
        except (CmflError, OSError) as error:
            _log.warning("old payloads and mail cannot be removed now: %s", error)
        await asyncio.sleep(POLL_SECONDS)


class _ErrorsAsProblems(HttpMiddleware):
    """Answers errors with problems, also to a client that is still sending."""

    def __init__(self, app: ASGIApp, realm: str) -> None:
        super().__init__(app)
        self._challenge = f'{SCHEME} realm="{realm}"'

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, is_incomplete = Request(scope), True

        async def noted() -> Message:
            nonlocal is_incomplete
            message = await receive()
            is_incomplete &= message["type"] == "http.request" and message.get("more_body", False)
            return message

        try:
            await self._app(scope, noted, send)
        except ProblemError as error:
            answer = problem(request, error.kind, str(error))
            is_incomplete &= error.kind is not uploads.TOO_SLOW
        except ChainError as error:
            _log.warning("the chain cannot be read: %s", error)
            answer = problem(request, CHAIN_UNREACHABLE, "the write permissions are unknown now")
        except OSError as error:
            _log.warning("%s: %s", error.filename, error.strerror)
            kind, detail = uploads.DISK_FAILS, "the store's disk fails; its log has the reason"
            if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
                kind, detail = uploads.DISK_FULL, "the store's disk is full; nothing was stored"
            answer = problem(request, kind, detail)
        else:
            return
        if answer.status_code == HTTPStatus.UNAUTHORIZED:
            answer.headers["WWW-Authenticate"] = self._challenge
        if scope["method"] == "PUT":
            answer.headers["Connection"] = "close"
            remaining = DRAINED_BYTES
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAINING_SECONDS):
                    while is_incomplete and remaining > 0:
                        remaining -= len((await noted()).get("body", b""))
        await answer(scope, receive, send)


def serve(
    settings: StoreSettings,
    ledger: CommitteeLedger,
    host: str,
    port: int,
    on_listening: Callable[[str], None] | None = None,
    pinned: PinnedBlobs | None = None,
) -> None:
    """Serve a folder, which is made if needed, until the process is stopped; port 0 is a free one.

    Without public URLs the store is known by the address that it listens on. `pinned` returns the
    blobs of other runs in the folder; None if they are unknown.
    """
    with listening_socket(host, port) as listener:
        urls = resolve_public_urls(settings.public_urls, host, listener)
        settings = settings.model_copy(update={"public_urls": urls})
        # One process counts the charges.
        with sole_process(settings.folder, STORE_LOCK):
            others = uploads.other_charges(settings.folder, ledger.domain())
            if pinned is None and others and settings.keep_rounds is not None:
                # A client could put the other contract's models once more, and would have them
                # removed with its own old round.
                raise ConfigurationError(
                    f"--folder {settings.folder} has {others[0].name}, of another contract, whose "
                    "blobs are unknown; use --keep-rounds with a home or a folder of one contract"
                )
            run_server(server_for(settings, ledger, pinned or frozenset), listener, on_listening)


def server_for(
    settings: StoreSettings, ledger: CommitteeLedger, pinned: PinnedBlobs = frozenset
) -> uvicorn.Server:
    """Return a server that has not started, with bounds on connections; see `create_store`."""
    names = {urlsplit(url).hostname or "" for url in settings.public_urls}
    return bounded_server(create_store(settings, ledger, pinned), names)


def resolve_public_urls(
    public_urls: Sequence[str], host: str, listener: socket.socket
) -> tuple[str, ...]:
    """Return a store's URLs for clients, which they sign with their uploads."""
    address, port = listener.getsockname()[:2]
    if not public_urls and ipaddress.ip_address(address).is_unspecified:
        raise ConfigurationError(
            f"--host {host} means every address of this machine, but uploads are signed for "
            "one URL; give the clients' URL with --public-url"
        )
    bracketed = f"[{host}]" if ":" in host else host
    urls = []
    for url in public_urls or (f"http://{bracketed}:{port}", url_of(listener)):
        try:
            require_plain_url("--public-url", url)
            urls.append(base_url(url))
        except ValueError as error:
            raise ConfigurationError(f"--public-url {url!r}: {error}") from error
        except BlobError as error:
            raise ConfigurationError(str(error)) from error
    return tuple(dict.fromkeys(urls))
