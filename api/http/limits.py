"""Middleware of both services: hosts, bodies, access, rates and metrics.

Metrics and log lines contain no header, query or token. Lines are JSON: no path looks like one.
"""

from __future__ import annotations

import hmac
import math
import re
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from enum import StrEnum
from ipaddress import IPv6Address, IPv6Network
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import structlog
from fastapi import Response
from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    generate_latest,
)
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.http import answers as kinds
from api.http.answers import plain_problem, problem
from api.schemas import MAX_SHOWN
from ledger.io.http import is_loopback, names_this_host
from ledger.protocol.encoding import sha256

if TYPE_CHECKING:
    from api.settings import Settings


# A name or address of RFC 3986, 3.2.2, or a literal in brackets; then a port.
_HOST = re.compile(
    r"(?:[A-Za-z0-9._~!$&'()*+,;=%-]{0,255}|\[(?P<literal>[0-9A-Fa-f:.]{2,45})\])"
    r"(?::(?P<port>[0-9]{0,5}))?"
)
HEADERS = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
}
"""Headers of an answer that does not set them itself."""


class HttpMiddleware:
    """An ASGI app around another, which gets what is not refused and what is not HTTP."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handle = self.handle if scope["type"] == "http" else self._app
        await handle(scope, receive, send)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self.refusal(Request(scope)) or self._app
        await answer(scope, receive, send)

    def refusal(self, request: Request) -> Response | None:  # noqa: ARG002
        return None


class HeadAsGet(HttpMiddleware):
    """Answers HEAD like GET; the endpoint sees a disconnect, so that it makes no endless stream."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        is_answered = False

        async def headers_only(message: Message) -> None:
            nonlocal is_answered
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b""})
                is_answered = True

        async def gone_once_answered() -> Message:
            return {"type": "http.disconnect"} if is_answered else await receive()

        # `Range` has a meaning for GET alone (RFC 9110, 14.2).
        headers = [(name, value) for name, value in scope["headers"] if name != b"range"]
        as_get = {**scope, "method": "GET", "headers": headers}
        await self._app(as_get, gone_once_answered, headers_only)
        scope["route"] = as_get.get("route")  # for the metrics


class HostCheck(HttpMiddleware):
    """Rejects a `Host` that is invalid (400), or no address, localhost or given name (421)."""

    def __init__(self, app: ASGIApp, names: Collection[str] | None = ()) -> None:
        super().__init__(app)
        self._names = names

    def refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")  # HTTP/1.0 has requests without one
        if not _is_host(host):
            detail = "header Host: must be a host's name or address, and a port or none"
            return plain_problem(request, 400, detail)
        if self._names is None or names_this_host(host, self._names):
            return None
        detail = (
            f"header Host: {host} is not a name of this server; use its address or localhost, or "
            f"start it with this name as --host, --allowed-host or --public-url"
        )
        return problem(request, kinds.HOST_NOT_SERVED, detail)


def _is_host(value: str) -> bool:
    """Return whether a `Host` header is valid; it may be empty (RFC 9110, 7.2)."""
    match = _HOST.fullmatch(value)
    if match is None or int(match["port"] or 0) > 65_535:
        return False
    try:
        return match["literal"] is None or bool(IPv6Address(match["literal"]))
    except ValueError:
        return False


class BodyLimit(HttpMiddleware):
    """Rejects a body that is too large, by its header or by the received bytes."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > kinds.MAX_BODY_BYTES:
            refused = problem(Request(scope), kinds.BODY_TOO_LARGE, kinds.BODY_RULE)
            await refused(scope, receive, send)
            return
        left = kinds.MAX_BODY_BYTES

        async def bounded() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413)
            return message

        await self._app(scope, bounded, send)


class SafeHeaders(HttpMiddleware):
    """Adds the headers that an answer does not set itself."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, with_headers)


_OPEN = frozenset({"/health", "/", "/dashboard", "/docs"})
"""Paths without tokens and limits, with the dashboard's files: they reveal nothing of a run."""
SHOWS_TOKEN = "cmfl.shows_token"  # noqa: S105 - a name, no token
"""Key of a request's scope: whether the request shows a token."""
_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


class Access(HttpMiddleware):
    """Rejects requests without a token, and those above the rate limit of their address."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        super().__init__(app)
        self._tokens = [sha256(token.encode()) for token in settings.tokens]
        self._reading_is_open = settings.reading_is_open
        rate = settings.requests_per_minute
        self._rate = None if rate is None else RateLimitItemPerMinute(rate)
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())

    def refusal(self, request: Request) -> Response | None:
        path, rate = request.scope["path"], self._rate
        if path in _OPEN or path.startswith("/dashboard/"):
            return None
        if rate is not None and not self._limiter.hit(rate, subject := address_of(request)):
            reset = self._limiter.get_window_stats(rate, subject).reset_time
            wait = str(max(1, math.ceil(reset - time.time())))
            detail = f"at most {rate.amount} a minute"
            return problem(request, kinds.RATE_EXCEEDED, detail, headers={"Retry-After": wait})
        kind, _, shown = request.headers.get("authorization", "").partition(" ")
        digest = sha256(shown.encode("latin-1").strip())
        # All are compared, in constant time.
        matches = [hmac.compare_digest(digest, token) for token in self._tokens]
        is_shown = kind.lower() == "bearer" and any(matches)
        is_reading = self._reading_is_open and request.method in {"GET", "HEAD", "OPTIONS"}
        if self._tokens and not is_shown and not is_reading:
            challenge, detail = "Bearer", "send a valid bearer token"
            return problem(
                request, kinds.TOKEN_NEEDED, detail, headers={"WWW-Authenticate": challenge}
            )
        request.scope[SHOWS_TOKEN] = is_shown
        return None


def address_of(request: Request) -> str:
    """Return a request's address, or its network: one user of IPv6 has 2**64 addresses."""
    address = request.client.host if request.client else "unknown"
    with suppress(ValueError):
        return str(IPv6Network(f"{address}/64", strict=False))
    return address


class VerificationPermission(StrEnum):
    """Permission to start an audit."""

    GRANTED = "granted"
    TOKEN_NEEDED = "token_needed"  # noqa: S105 - a word, no token
    THIS_MACHINE_ONLY = "this_machine_only"
    OFF = "off"


def permission(request: Request, settings: Settings) -> VerificationPermission:
    """Return whether a request may start expensive work: by token, or from this machine.

    Without tokens, work is started only for requests from a loopback address, to a loopback name,
    through no proxy, and from no page of another origin.
    """
    if not settings.verifications:
        return VerificationPermission.OFF
    if settings.tokens:
        is_granted, needed = request.scope.get(SHOWS_TOKEN, False), "token_needed"
    else:
        is_granted, needed = _is_from_here(request), "this_machine_only"
    return VerificationPermission("granted" if is_granted else needed)


def is_foreign_page(request: Request, settings: Settings) -> bool:
    """Return whether a request comes from a page of an origin that is not allowed."""
    origin = request.headers.get("origin")
    if origin is None or origin in settings.allowed_origins:
        return False
    try:
        host = urlsplit(origin).netloc
    except ValueError:
        return True  # no browser sends this
    return host.lower() != request.headers.get("host", "").lower()


def _is_from_here(request: Request) -> bool:
    if request.client is None or any(name in request.headers for name in _FORWARDED):
        return False
    name = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    return is_loopback(request.client.host) and is_loopback(name)


_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Metrics:
    """Counters of one app."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        labels = ("endpoint", "status")
        self.requests = Counter("cmfl_requests", "Answered requests.", labels, registry=registry)
        self.seconds = Histogram(
            "cmfl_request_seconds",
            "Seconds until an answer was sent.",
            ("endpoint",),
            buckets=_SECONDS,
            registry=registry,
        )

    def exposition(self) -> Response:
        headers = {"Cache-Control": "no-store", "Content-Type": CONTENT_TYPE_LATEST}
        return Response(generate_latest(self.registry), headers=headers)


class MetricsMiddleware(HttpMiddleware):
    """Counts and times every request, and writes its line."""

    def __init__(self, app: ASGIApp, metrics: Metrics, *, logs: bool) -> None:
        super().__init__(app)
        self._metrics = metrics
        stamped = structlog.processors.TimeStamper(fmt="iso", utc=True)
        lines: list[Any] = [stamped, structlog.processors.JSONRenderer()]
        log = structlog.wrap_logger(structlog.WriteLogger(sys.stderr), processors=lines)
        self._log = log if logs else None

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        start, status, sent = time.perf_counter(), 500, 0

        async def counted(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                sent += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, counted)
        finally:
            seconds = time.perf_counter() - start
            # The path's pattern, so that the number of labels is bounded.
            endpoint = str(getattr(scope.get("route"), "path", "none"))
            self._metrics.requests.labels(endpoint, str(status)).inc()
            self._metrics.seconds.labels(endpoint).observe(seconds)
            if self._log is not None:
                self._log.info(
                    "request",
                    method=scope["method"],
                    path=scope["path"][:MAX_SHOWN],
                    status=status,
                    bytes=sent,
                    milliseconds=round(1000 * seconds, 1),
                    client=scope["client"][0] if scope.get("client") else None,
                )
