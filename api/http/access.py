"""Access control: bearer tokens, a rate limit for each address, and permission to start work."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import time
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from api.http.problems import RATE_EXCEEDED, TOKEN_NEEDED, problem
from ledger.io.http import is_loopback

if TYPE_CHECKING:
    from api.settings import Settings

OPEN = frozenset({"/health"})
"""Paths without tokens and limits: they cost and reveal nothing."""
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
SHOWS_TOKEN = "cmfl.shows_token"  # noqa: S105 - a name, no token
"""Key of a request's scope: whether the request shows a token."""
_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


class Access:
    """Rejects requests without a token, and those above the rate limit.

    Args:
        tokens: one of which a request must show; empty for open access.
        per_minute: requests of one address; None for no limit.
        reading_is_open: whether a token is only needed to start work.
    """

    def __init__(
        self,
        app: ASGIApp,
        tokens: Sequence[str],
        per_minute: int | None,
        *,
        reading_is_open: bool = False,
    ) -> None:
        self._app = app
        self._tokens = [_digest(token.encode()) for token in tokens]
        self._item = None if per_minute is None else RateLimitItemPerMinute(per_minute)
        self._reading_is_open = reading_is_open
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or reject a request."""
        if scope["type"] != "http" or scope["path"] in OPEN or _is_of_page(scope["path"]):
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        if self._item is not None and (wait := self._wait(scope)) is not None:
            answer = problem(request, RATE_EXCEEDED, f"at most {self._item.amount} a minute")
            answer.headers["Retry-After"] = str(wait)
        elif not (knows := self._knows(scope)) and not self._is_open(scope):
            answer = problem(request, TOKEN_NEEDED, "show a bearer token that this service knows")
            answer.headers["WWW-Authenticate"] = "Bearer"
        else:
            scope[SHOWS_TOKEN] = knows  # no copy: the metrics read the endpoint in it
            await self._app(scope, receive, send)
            return
        await answer(scope, receive, send)

    def _wait(self, scope: Scope) -> int | None:
        """Return how many seconds an address must wait; None if it need not."""
        assert self._item is not None, "a rate is set"
        subject = address_of(scope)
        if self._limiter.hit(self._item, subject):
            return None
        reset = self._limiter.get_window_stats(self._item, subject).reset_time
        return max(1, math.ceil(reset - time.time()))

    def _is_open(self, scope: Scope) -> bool:
        """Return whether a request may pass without a token."""
        return not self._tokens or (self._reading_is_open and scope["method"] in _READING)

    def _knows(self, scope: Scope) -> bool:
        """Return whether a request shows a valid token; compared in constant time."""
        if not self._tokens:
            return False
        authorization = dict(scope["headers"]).get(b"authorization", b"")
        kind, _, shown = authorization.partition(b" ")
        digest = _digest(shown.strip())
        matches = [hmac.compare_digest(digest, token) for token in self._tokens]
        return kind.lower() == b"bearer" and any(matches)


def _is_of_page(path: str) -> bool:
    """Return whether a path is a file of the dashboard; these reveal nothing of a run."""
    return path in {"/", "/dashboard", "/docs"} or path.startswith("/dashboard/")


def address_of(scope: Scope) -> str:
    """Return a request's address, or its network: one user of IPv6 has 2**64 addresses."""
    address = str(scope["client"][0]) if scope.get("client") else "unknown"
    try:
        network = ipaddress.ip_network(f"{address}/64", strict=False)
    except ValueError:
        return address
    return str(network)


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


class VerificationPermission(StrEnum):
    """Permission to start an audit."""

    GRANTED = "granted"
    TOKEN_NEEDED = "token_needed"  # noqa: S105 - a word, no token
    THIS_MACHINE_ONLY = "this_machine_only"
    OFF = "off"


def permission(request: Request, settings: Settings) -> VerificationPermission:
    """Return whether a request may start expensive work: by token, or from this machine.

    Reading costs little and may be open to all. Without tokens, work is started only for requests
    from a loopback address, to a loopback name, through no proxy, and from no page of another
    origin.
    """
    if not settings.verifications:
        return VerificationPermission.OFF
    if settings.tokens:
        is_known = request.scope.get(SHOWS_TOKEN, False)
        return VerificationPermission.GRANTED if is_known else VerificationPermission.TOKEN_NEEDED
    return (
        VerificationPermission.GRANTED
        if _is_from_here(request)
        else VerificationPermission.THIS_MACHINE_ONLY
    )


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
