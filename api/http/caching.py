"""Caching rules of answers, and the cache of those about rounds that have ended.

A round that has ended in a final block cannot change any more. Its answers name that block in
`as_of`, not the head, so that a URL always gives the same bytes: they carry a strong ETag, the
sha256 of the bytes, and `immutable`. All other answers, also those that lack a missing blob, carry
a weak ETag, which changes with every block, and `no-cache`: a client must revalidate.

What is said of a round that has ended in a block which is not final holds as long as the chain has
that block. It is cached without `as_of`, and each request looks at the block's hash again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from fastapi.responses import Response
from pydantic_core import to_json
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from api.http.encoded_answer import EncodedAnswer
from api.http.problems import ProblemError
from api.http.root_path import to_rooted_json
from api.request_view import RequestView
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.history.pinned_chain import HistoryService
    from ledger.history.responses.fields import AsOf

Key = tuple[int, bytes, str]
"""Number of the opened chain, hash of its block 0, path with query."""

MOST_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class EndedRound:
    """What an answer says of a round that has ended: true on every chain with the ending block.

    Attributes:
        block_number: of the block that ended the round.
        block_hash: of that block.
        body: the answer in JSON, without `as_of`.
    """

    block_number: int
    block_hash: bytes
    body: bytes

    def answer(self, reading: RequestView) -> EncodedAnswer:
        """Return the answer on a chain that contains the ending block."""
        if not reading.is_final(self.block_number):
            return _encoded(reading.as_of, self.body)
        as_of = reading.as_of_final(self.block_number, self.block_hash)
        return _encoded(as_of, self.body, immutable=True)


def _encoded(as_of: AsOf, body: bytes, *, immutable: bool = False) -> EncodedAnswer:
    """Return the answer of a JSON object that has members, with `as_of` before them."""
    return EncodedAnswer(b'{"as_of":' + to_json(as_of) + b"," + body[1:], immutable)


class AnswerCache:
    """The most recently used answers, up to a number of bytes; safe to share between threads.

    A key names the chain, so that an answer of one home is never given for another.
    """

    def __init__(self, max_bytes: int = MOST_BYTES) -> None:
        self._most = max_bytes
        self._size = 0
        self._answers: OrderedDict[Key, EncodedAnswer | EndedRound] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: Key) -> EncodedAnswer | EndedRound | None:
        """Return a final answer, or what is known of an ended round; None if there is none."""
        with self._lock:
            answer = self._answers.get(key)
            if answer is not None:
                self._answers.move_to_end(key)
            return answer

    def add(self, key: Key, answer: EncodedAnswer | EndedRound) -> None:
        """Add what does not change, and evict the least recently used ones."""
        if _size(answer) > self._most:
            return
        with self._lock:
            replaced = self._answers.pop(key, None)
            self._size += _size(answer) - (0 if replaced is None else _size(replaced))
            self._answers[key] = answer
            while self._size > self._most:
                _, evicted = self._answers.popitem(last=False)
                self._size -= _size(evicted)


def _size(answer: EncodedAnswer | EndedRound) -> int:
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
        ended: the end of the round, if the answer follows from it and from blocks before it.
    """
    reading.verify_unmoved()
    body = to_rooted_json(request, response)
    if ended is None:
        return response_of(request, _encoded(reading.as_of, body))
    known = EndedRound(ended.block_number, ended.block_hash, body)
    answer = known.answer(reading)
    cache = cast("AnswerCache", request.app.state.cache)
    key = _key(reading.chain.opened, reading.chain.path.genesis, request.scope)
    cache.add(key, answer if answer.immutable else known)
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
        key = self._key_of(scope)
        found = None if key is None else self._cache.find(key)
        answer = found if isinstance(found, EncodedAnswer) else None
        if key is not None and isinstance(found, EndedRound):
            try:
                answer = await run_in_threadpool(self._answer_now, key, found)
            except ChainError as error:
                unreadable = scope["app"].exception_handlers[ChainError]
                await (await unreadable(Request(scope), error))(scope, receive, send)
                return
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

    def _key_of(self, scope: Scope) -> Key | None:
        """Return the key of a request about the open chain; None for another request."""
        if scope["type"] != "http" or scope["method"] != "GET":
            return None
        if not scope["path"].startswith("/v1/chains/"):
            return None
        current = self._histories.opened()
        if current is None or scope["path"].split("/", 4)[3] != current.path.name:
            return None
        return _key(current.opened, current.path.genesis, scope)

    def _answer_now(self, key: Key, known: EndedRound) -> EncodedAnswer | None:
        """Return the answer as of now; None if the ending block is final, or is not there any more.

        Raises:
            ChainError: the chain cannot be read.
        """
        reading = RequestView(self._histories)
        opened, genesis, _ = key
        if (reading.chain.opened, reading.chain.path.genesis) != (opened, genesis):
            return None
        if reading.is_final(known.block_number):
            return None  # what is kept for good is read from final blocks
        if not reading.has_block(known.block_number, known.block_hash):
            return None
        try:
            reading.verify_unmoved()
        except ProblemError:
            return None
        return known.answer(reading)


def _key(opened: int, genesis: bytes, scope: Scope) -> Key:
    path = scope.get("raw_path") or scope["path"].encode()
    return opened, genesis, f"{path.decode('latin-1')}?{scope['query_string'].decode('latin-1')}"


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")
