"""Who may begin what costs the service something: whoever shows a token, or sits at its machine.

Reading costs little and may be open to all. Where no token is set, work is begun only for requests
that come from this machine itself: from a loopback address, to a loopback name, through no proxy,
and from no foreign page in somebody's browser.
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
    """Return whether who asks may begin work.

    Args:
        request: what is asked.
        settings: whether there are tokens, and what is run at all.
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
    """Say whether a page of another origin has a browser ask, that may not.

    Args:
        request: what is asked.
        settings: which origins may.
    """
    origin = request.headers.get("origin")
    if origin is None or origin in settings.allowed_origins:
        return False
    try:
        asking = urlsplit(origin).netloc
    except ValueError:
        return True  # no browser sends what is no origin
    return asking.lower() != request.headers.get("host", "").lower()


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
