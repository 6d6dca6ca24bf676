"""Middleware of both services: HEAD, the Host header, the limit of bodies, security headers."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.http.problems import BODY_TOO_LARGE, HOST_NOT_SERVED, plain_problem, problem
from ledger.io.http import names_this_host

_HIGHEST_PORT = 65_535
# A name or address of RFC 3986, 3.2.2, or a literal in brackets; then a port.
_HOST = re.compile(
    r"(?:[A-Za-z0-9._~!$&'()*+,;=%-]{0,255}|\[(?P<literal>[0-9A-Fa-f:.]{2,45})\])"
    r"(?::(?P<port>[0-9]{0,5}))?"
)
_ALLOWED_HOSTS = (
    "use its address or localhost, or start it with this name as --host, --allowed-host or "
    "--public-url"
)
MAX_BODY_BYTES = 16_384
HEADERS = {
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"x-frame-options": b"DENY",
}
"""What an answer says of itself; a page that needs more says so itself."""


class HeadAsGet:
    """Answers HEAD on every path of a GET, with the same headers.

    The endpoint sees a disconnect, so that no endless stream is made for nothing.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
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


class HostCheck:
    """Rejects a `Host` header that is invalid (400) or names another host (421).

    Args:
        names: allowed besides addresses and localhost; None for all.
    """

    def __init__(self, app: ASGIApp, names: Collection[str] | None = ()) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or reject a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # HTTP/1.0 has requests without one.
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        if not is_host(host):
            detail = "header Host: must be a host's name or address, and a port or none"
            await plain_problem(Request(scope), 400, detail)(scope, receive, send)
        elif self._names is None or names_this_host(host, self._names):
            await self._app(scope, receive, send)
        else:
            detail = f"header Host: {host} is not a name of this server; {_ALLOWED_HOSTS}"
            await problem(Request(scope), HOST_NOT_SERVED, detail)(scope, receive, send)


def is_host(value: str) -> bool:
    """Return whether a `Host` header is valid; it may be empty (RFC 9110, 7.2)."""
    match = _HOST.fullmatch(value)
    if match is None or int(match["port"] or 0) > _HIGHEST_PORT:
        return False
    return match["literal"] is None or _is_ipv6(match["literal"])


def _is_ipv6(literal: str) -> bool:
    try:
        ipaddress.IPv6Address(literal)
    except ValueError:
        return False
    return True


class BodyLimit:
    """Rejects a body that is too large, by its header or by the received bytes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > MAX_BODY_BYTES:
            detail = f"a request's body has at most {MAX_BODY_BYTES} bytes"
            await problem(Request(scope), BODY_TOO_LARGE, detail)(scope, receive, send)
            return
        left = MAX_BODY_BYTES

        async def bounded() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413)
            return message

        await self._app(scope, bounded, send)


class SafeHeaders:
    """Adds what an answer does not say itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name.lower() for name, _ in message["headers"]}
                added = [(name, value) for name, value in HEADERS.items() if name not in own]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        await self._app(scope, receive, with_headers)
