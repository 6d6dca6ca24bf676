"""An answer as bytes, plain and compressed, with its entity tags.

The compressed form is other bytes and has its own tag; a client may name either.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from dataclasses import dataclass
from functools import cached_property

IMMUTABLE = "public, max-age=31536000, immutable"
CHANGING = "no-cache"
WORTH_COMPRESSING = 1_024
"""Fewer bytes fit into one packet."""

_MAX_HEADER = 4_096
_GZIP = re.compile(
    r"(?:^|,)\s*(?:gzip|\*)\s*(?:;\s*q=(?P<weight>[0-9.]{1,5})\s*)?(?=,|$)", re.IGNORECASE
)
_ZIPPED = "-gzip"


@dataclass(frozen=True)
class EncodedAnswer:
    """The plain bytes of an answer, and whether they can change."""

    body: bytes
    immutable: bool
    media_type: str = "application/json"

    @cached_property
    def tag(self) -> str:
        """The entity tag of the plain bytes, without W/."""
        return f'"{hashlib.sha256(self.body).hexdigest()[:32]}"'

    @cached_property
    def zipped(self) -> bytes:
        """The compressed bytes, always the same for the same body."""
        return gzip.compress(self.body, compresslevel=5, mtime=0)

    def answer_to(
        self, if_none_match: str | None, accept_encoding: str | None
    ) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body for these headers of a request."""
        zips = len(self.body) >= WORTH_COMPRESSING and takes_gzip(accept_encoding)
        tag = f'{self.tag[:-1]}{_ZIPPED}"' if zips else self.tag
        headers = {
            "ETag": tag if self.immutable else f"W/{tag}",
            "Cache-Control": IMMUTABLE if self.immutable else CHANGING,
            "Vary": "Accept-Encoding",
            "X-Content-Type-Options": "nosniff",
        }
        if is_known(if_none_match, self.tag):
            return 304, headers, b""
        body = self.zipped if zips else self.body
        headers |= {"Content-Type": self.media_type, "Content-Length": str(len(body))}
        return 200, headers | ({"Content-Encoding": "gzip"} if zips else {}), body


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
