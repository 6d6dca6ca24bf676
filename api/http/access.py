"""Who may ask, and how often: bearer tokens and a rate for each address, where they are wanted."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import time
from typing import TYPE_CHECKING

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from starlette.requests import Request

from api.http.problems import RATE_EXCEEDED, TOKEN_NEEDED, problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

OPEN = frozenset({"/health"})
"""Paths that anybody may ask for at any rate: they cost nothing and tell nothing."""
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
SHOWS_TOKEN = "cmfl.shows_token"  # noqa: S105 - a name, no token
"""What a request's scope says to whatever answers it."""


class Access:
    """Lets through who shows a token, and nobody oftener than so many times a minute.

    Args:
        app: answers.
        tokens: one of which has to be shown; none if anybody may ask.
        per_minute: requests of one address; None for no limit.
        reading_is_open: whether a token is only needed for what begins or ends something.
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
        """Answer a request, or refuse it."""
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
            scope[SHOWS_TOKEN] = knows  # no copy: those outside read in it which endpoint it was
            await self._app(scope, receive, send)
            return
        await answer(scope, receive, send)

    def _wait(self, scope: Scope) -> int | None:
        """Return for how many seconds an address has to wait; None if it may ask now."""
        assert self._item is not None, "a rate is set"
        who = _asking(scope["client"][0]) if scope.get("client") else "unknown"
        if self._limiter.hit(self._item, who):
            return None
        reset = self._limiter.get_window_stats(self._item, who).reset_time
        return max(1, math.ceil(reset - time.time()))

    def _is_open(self, scope: Scope) -> bool:
        """Say whether a request may pass without a token."""
        return not self._tokens or (self._reading_is_open and scope["method"] in _READING)

    def _knows(self, scope: Scope) -> bool:
        """Say whether a request shows one of our tokens; compared in constant time."""
        if not self._tokens:
            return False
        authorization = dict(scope["headers"]).get(b"authorization", b"")
        kind, _, shown = authorization.partition(b" ")
        digest = _digest(shown.strip())
        found = [hmac.compare_digest(digest, token) for token in self._tokens]
        return kind.lower() == b"bearer" and any(found)


def _is_of_page(path: str) -> bool:
    """Say whether a path is one of the dashboard's own files, which tell nothing of a run.

    There are some dozens of them, held in memory; a page asks its reader for the token.
    """
    return path in {"/", "/dashboard"} or path.startswith("/dashboard/")


def _asking(address: str) -> str:
    """Return whom an address stands for: somebody with IPv6 has 2**64 of them."""
    try:
        network = ipaddress.ip_network(f"{address}/64", strict=False)
    except ValueError:
        return address
    return str(network)


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
