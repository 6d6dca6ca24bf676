"""An answer as bytes, plain and compressed, with its entity tags.

The compressed form is other bytes and has its own tag; a client may name either.
"""

from __future__ import annotations

import gzip
import hashlib
import re

from starlette.requests import Request
from starlette.responses import Response

IMMUTABLE = "public, max-age=31536000, immutable"
CHANGING = "no-cache"
WORTH_COMPRESSING = 1_024
"""Fewer bytes fit into one packet."""

_MAX_HEADER = 4_096
_GZIP = re.compile(
    r"(?:^|,)\s*(?:gzip|\*)\s*(?:;\s*q=(?P<weight>[0-9.]{1,5})\s*)?(?=,|$)", re.IGNORECASE
)
_ZIPPED = "-gzip"


def encoded(request: Request, body: bytes, *, immutable: bool = False) -> Response:
    """Return an answer in the form that a request accepts, or 304 if the client has it already."""
    plain_tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    zips = len(body) >= WORTH_COMPRESSING and takes_gzip(request.headers.get("accept-encoding"))
    tag = f'{plain_tag[:-1]}{_ZIPPED}"' if zips else plain_tag
    headers = {
        "ETag": tag if immutable else f"W/{tag}",
        "Cache-Control": IMMUTABLE if immutable else CHANGING,
        "Vary": "Accept-Encoding",
        "X-Content-Type-Options": "nosniff",
    }
    if is_known(request.headers.get("if-none-match"), plain_tag):
        return Response(status_code=304, headers=headers)
    if zips:
        headers["Content-Encoding"] = "gzip"
        body = gzip.compress(body, compresslevel=5, mtime=0)  # the same for the same body
    return Response(body, 200, headers, "application/json")


def is_known(if_none_match: str | None, tag: str) -> bool:
    """Return whether a client has these bytes, by the weak comparison of RFC 9110, 13.1.2.

    Args:
        if_none_match: the header; ignored if it is too long.
        tag: of the plain bytes, without W/; the tag of the compressed bytes matches, too.
    """
    if if_none_match is None or len(if_none_match) > _MAX_HEADER:
        return False
    tags = [part.strip().removeprefix("W/") for part in if_none_match.split(",")]
    plain = {each.replace(f'{_ZIPPED}"', '"') for each in tags}
    return if_none_match.strip() == "*" or tag in plain


def takes_gzip(accept_encoding: str | None) -> bool:
    """Return whether a client accepts gzip; a header that is too long is ignored."""
    if accept_encoding is None or len(accept_encoding) > _MAX_HEADER:
        return False
    match = _GZIP.search(accept_encoding)
    if match is None:
        return False
    weight = match["weight"]
    return weight is None or weight.strip("0.") != ""
