"""Caching rules of answers.

A round that has ended in a final block cannot change any more. Its answers name that block in
`as_of`, not the head, so that a URL always gives the same bytes: they carry a strong ETag, the
sha256 of the bytes, and `immutable`. All other answers, also those that lack a missing blob, carry
a weak ETag, which changes with every block, and `no-cache`: a client must revalidate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from fastapi.responses import Response
from pydantic_core import to_json

from api.http.encoded_answer import EncodedAnswer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from api.http.answer_cache import AnswerCache, Key
    from api.request_view import RequestView
    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.history.pinned_chain import HistoryService


def respond(
    request: Request,
    reading: RequestView,
    response: Mapping[str, object],
    *,
    ended: RecordedEvent | None = None,
) -> Response:
    """Return an answer with its validators, or 304 if the client has it already.

    Args:
        request: that is answered.
        reading: the chain that was read.
        response: without `as_of`.
        ended: the end of the round, if the answer cannot change once that end is final.
    """
    reading.verify_unmoved()
    immutable = ended is not None and reading.is_final(ended)
    as_of = reading.as_of_end(ended) if ended is not None and immutable else reading.as_of
    answer = EncodedAnswer(to_json({"as_of": as_of, **response}), immutable)
    if immutable:
        cache = cast("AnswerCache", request.app.state.cache)
        cache.add(_key(reading.chain.opened, reading.chain.path.genesis, request.scope), answer)
    return response_of(request, answer)


def response_of(request: Request, answer: EncodedAnswer) -> Response:
    """Return an answer in the form that a request accepts."""
    status, headers, body = answer.answer_to(
        request.headers.get("if-none-match"), request.headers.get("accept-encoding")
    )
    return Response(body, status, headers)


class AnswerCacheMiddleware:
    """Answers from the cache, before anything else handles a request."""

    def __init__(self, app: ASGIApp, histories: HistoryService, cache: AnswerCache) -> None:
        self._app = app
        self._histories = histories
        self._cache = cache

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, from the cache if possible."""
        answer = self._find(scope)
        if answer is None:
            await self._app(scope, receive, send)
            return
        requested = dict(scope["headers"])
        status, headers, body = answer.answer_to(
            *(_text(requested.get(name)) for name in (b"if-none-match", b"accept-encoding"))
        )
        encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": encoded})
        await send({"type": "http.response.body", "body": body})

    def _find(self, scope: Scope) -> EncodedAnswer | None:
        if scope["type"] != "http" or scope["method"] != "GET":
            return None
        if not scope["path"].startswith("/v1/chains/"):
            return None
        current = self._histories.opened()
        if current is None or scope["path"].split("/", 4)[3] != current.path.name:
            return None
        return self._cache.find(_key(current.opened, current.path.genesis, scope))


def _key(opened: int, genesis: bytes, scope: Scope) -> Key:
    path = scope.get("raw_path") or scope["path"].encode()
    return opened, genesis, f"{path.decode('latin-1')}?{scope['query_string'].decode('latin-1')}"


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")
