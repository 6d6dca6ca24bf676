"""Permission to start expensive work: by token, or from the service's own machine.

Reading costs little and may be open to all. Without tokens, work is started only for requests from
this machine: from a loopback address, to a loopback name, through no proxy, and from no page of
another origin.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from api.http.access import SHOWS_TOKEN
from api.schemas.verifications import VerificationPermission

if TYPE_CHECKING:
    from starlette.requests import Request

    from api.settings import Settings

_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


def permission(request: Request, settings: Settings) -> VerificationPermission:
    """Return whether a request may start work."""
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
    return _is_loopback(request.client.host) and (name == "localhost" or _is_loopback(name))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
