"""What may be kept, and for how long.

A round that has ended in a final block cannot change any more. Its answers quote that block as
`as_of`, not the head, so that the same URL gives the same bytes for ever: they carry a strong
ETag, the sha256 of those bytes, and `immutable`. The exception is an answer that should hold a
blob which is not there: it may come back, so the answer is treated like all others, that is with
a weak ETag (it changes with every block, since it names the head) and `no-cache`: keep it if you
like, but ask.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from fastapi.responses import Response

if TYPE_CHECKING:
    from starlette.requests import Request

    from api.reading import Reading
    from api.schemas.words import Answer

IMMUTABLE = "public, max-age=31536000, immutable"
CHANGING = "no-cache"
_MAX_HEADER = 4_096


def respond(
    request: Request, reading: Reading, answer: Answer, *, immutable: bool = False
) -> Response:
    """Return an answer with its validators, or 304 if the client has it already.

    Args:
        request: what was asked.
        reading: where the answer was read.
        answer: what is said.
        immutable: whether these bytes are this URL's for ever.

    Returns:
        The response.
    """
    reading.verify_unmoved()
    body = answer.model_dump_json().encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {
        "ETag": tag if immutable else f"W/{tag}",
        "Cache-Control": IMMUTABLE if immutable else CHANGING,
        "X-Content-Type-Options": "nosniff",
    }
    if is_known(request.headers.get("if-none-match"), tag):
        return Response(status_code=304, headers=headers)
    return Response(body, 200, headers, "application/json")


def is_known(if_none_match: str | None, tag: str) -> bool:
    """Say whether a client has these bytes, by the weak comparison of RFC 9110, 13.1.2.

    Args:
        if_none_match: the header's value; one that is too long is taken for absent.
        tag: the entity tag, without W/.
    """
    if if_none_match is None or len(if_none_match) > _MAX_HEADER:
        return False
    known = [part.strip().removeprefix("W/") for part in if_none_match.split(",")]
    return if_none_match.strip() == "*" or tag in known
