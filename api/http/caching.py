"""Caching rules of answers.

A round that has ended in a final block cannot change any more. Its answers name that block in
`as_of`, not the head, so that a URL always gives the same bytes: they carry a strong ETag, the
sha256 of the bytes, and `immutable`. All other answers, also those that lack a missing blob, carry
a weak ETag, which changes with every block, and `no-cache`: a client must revalidate.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from api.http.encoded_answer import encoded
from api.http.request_view import RequestView
from api.http.root_path import to_rooted_json
from ledger.chain.contract.codec import RecordedEvent
from ledger.protocol.encoding import to_hex


def respond(
    request: Request,
    reading: RequestView,
    response: Mapping[str, object],
    *,
    ended: RecordedEvent | None = None,
) -> Response:
    """Return an answer with its validators, or 304 if the client has it already.

    Args:
        ended: the end of the round, if the answer follows from it and from blocks before it.
    """
    reading.verify_unmoved()
    as_of = reading.as_of
    is_final = ended is not None and ended.block_number <= reading.chain.final
    if ended is not None and is_final:
        number, block_hash = ended.block_number, to_hex(ended.block_hash)
        as_of = {"number": number, "hash": block_hash, "finalized": True}
    # The response is a JSON object that has members: `as_of` comes before them.
    body = to_rooted_json(request, response)
    body = b'{"as_of":' + to_json(as_of) + b"," + body[1:]
    return encoded(request, body, immutable=is_final)
