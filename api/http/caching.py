"""Caching rules of answers, and the cache of those that are final.

A round that has ended in a final block cannot change any more. Its answers name that block in
`as_of`, not the head, so that a URL always gives the same bytes: they carry a strong ETag, the
sha256 of the bytes, and `immutable`. All other answers, also those that lack a missing blob, carry
a weak ETag, which changes with every block, and `no-cache`: a client must revalidate.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, cast

from fastapi.responses import Response
from pydantic_core import to_json

from api.http.encoded_answer import EncodedAnswer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from api.request_view import RequestView
    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.history.pinned_chain import HistoryService

Key = tuple[int, bytes, str]
"""Number of the opened chain, hash of its block 0, path with query."""

MOST_BYTES = 64 * 2**20


class AnswerCache:
    """The most recently used final answers, up to a number of bytes; safe to share between threads.

    A key names the chain, so that an answer of one home is never given for another.
    """

    def __init__(self, max_bytes: int = MOST_BYTES) -> None:
        self._most = max_bytes
        self._size = 0
        self._answers: OrderedDict[Key, EncodedAnswer] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: Key) -> EncodedAnswer | None:
        """Return a cached answer, None if there is none."""
        with self._lock:
            answer = self._answers.get(key)
            if answer is not None:
                self._answers.move_to_end(key)
            return answer

    def add(self, key: Key, answer: EncodedAnswer) -> None:
        """Add an immutable answer, and evict the least recently used ones."""
        if _size(answer) > self._most:
            return
        with self._lock:
            replaced = self._answers.pop(key, None)
            self._size += _size(answer) - (0 if replaced is None else _size(replaced))
            self._answers[key] = answer
            while self._size > self._most:
                _, evicted = self._answers.popitem(last=False)
                self._size -= _size(evicted)


def _size(answer: EncodedAnswer) -> int:
    """Return the size of an answer, plain and compressed, at most."""
    return 2 * len(answer.body)


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
