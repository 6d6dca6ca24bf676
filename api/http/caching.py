"""What may be kept, and for how long.

A round that has ended in a final block cannot change any more. Its answers quote that block as
`as_of`, not the head, so that the same URL gives the same bytes for ever: they carry a strong
ETag, the sha256 of those bytes, and `immutable`. The exception is an answer that should hold a
blob which is not there: it may come back, so the answer is treated like all others, that is with
a weak ETag (it changes with every block, since it names the head) and `no-cache`: keep it if you
like, but ask.
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
        request: what was asked.
        reading: where the answer was read.
        response: without `as_of`.
        ended: how the round ended that the answer tells whole, so that these bytes are this URL's
            for ever once the end is final; None for what may change.

    Returns:
        The response.
    """
    reading.verify_unmoved()
    immutable = ended is not None and reading.is_final(ended)
    as_of = reading.as_of_end(ended) if ended is not None and immutable else reading.as_of
    answer = EncodedAnswer(to_json({"as_of": as_of, **response}), immutable)
    if immutable:
        kept = cast("AnswerCache", request.app.state.kept)
        kept.keep(_key(reading.chain.opened, reading.chain.path.genesis, request.scope), answer)
    return response_of(request, answer)


def response_of(request: Request, answer: EncodedAnswer) -> Response:
    """Return an answer for a request.

    Args:
        request: what was asked.
        answer: what is said.
    """
    asked = request.headers
    status, headers, body = answer.answer_to(
        asked.get("if-none-match"), asked.get("accept-encoding")
    )
    return Response(body, status, headers)


class AnswerCacheMiddleware:
    """Gives answers about final rounds again, before anything else looks at a request."""

    def __init__(self, app: ASGIApp, histories: HistoryService, kept: AnswerCache) -> None:
        self._app = app
        self._histories = histories
        self._kept = kept

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, from what is kept if there is something."""
        answer = self._find(scope)
        if answer is None:
            await self._app(scope, receive, send)
            return
        asked = dict(scope["headers"])
        status, headers, body = answer.answer_to(
            *(_text(asked.get(name)) for name in (b"if-none-match", b"accept-encoding"))
        )
        encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": encoded})
        await send({"type": "http.response.body", "body": body})

    def _find(self, scope: Scope) -> EncodedAnswer | None:
        if scope["type"] != "http" or scope["method"] != "GET":
            return None
        if not scope["path"].startswith("/v1/chains/"):
            return None
        known = self._histories.opened()
        if known is None or scope["path"].split("/", 4)[3] != known.path.name:
            return None
        return self._kept.find(_key(known.opened, known.path.genesis, scope))


def _key(opened: int, genesis: bytes, scope: Scope) -> Key:
    path = scope.get("raw_path") or scope["path"].encode()
    return opened, genesis, f"{path.decode('latin-1')}?{scope['query_string'].decode('latin-1')}"


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")
