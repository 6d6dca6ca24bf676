"""Rejection of an invalid `Host` header before anything parses it (RFC 9112, 3.2)."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

from starlette.requests import Request

from api.http.problems import plain_problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_HIGHEST_PORT = 65_535
# A name or address of RFC 3986, 3.2.2, or a literal in brackets; then a port.
_HOST = re.compile(
    r"(?:[A-Za-z0-9._~!$&'()*+,;=%-]{0,255}|\[(?P<literal>[0-9A-Fa-f:.]{2,45})\])"
    r"(?::(?P<port>[0-9]{0,5}))?"
)


class HostCheck:
    """Answers 400 to a request with an invalid `Host` header."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or is_host(_host(scope)):
            await self._app(scope, receive, send)
            return
        detail = "header Host: must be a host's name or address, and a port or none"
        await plain_problem(Request(scope), 400, detail)(scope, receive, send)


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


def _host(scope: Scope) -> str:
    # HTTP/1.0 has requests without one.
    value: bytes = dict(scope["headers"]).get(b"host", b"")
    return value.decode("latin-1")
