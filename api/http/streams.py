"""Server-sent events with a limit on open streams, and byte ranges of blobs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from io import BufferedReader
from typing import Annotated, TypeVar

import anyio
from fastapi import Header
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import AppStatus
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from api.http import answers as kinds
from api.http.answers import ProblemError, problem
from api.http.limits import address_of

# The library would end the streams of each later server of a process once one was interrupted.
# `Streams.are_ending` ends those of one server.
AppStatus.enable_automatic_graceful_drain = False

S = TypeVar("S")

PING_SECONDS = 15
POLL_SECONDS = 0.5

LastEventId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        description="the `id` of the last event that was received: goes on after it. 0 tells all "
        "rounds, none at all only what is new",
        max_length=10,
        pattern="^(0|[1-9][0-9]{0,9})$",
        examples=["7"],
    ),
]


class Streams:
    """The number of open streams by address or /64 network; only for the event loop's thread."""

    def __init__(self, most: int, most_of_address: int) -> None:
        self._most = most
        self._most_of_address = most_of_address
        self._open: Counter[str] = Counter()
        self.are_ending = False

    def end(self) -> None:
        """End the open streams: the service shuts down, and readers may stay."""
        self.are_ending = True

    @contextmanager
    def reserve(self, request: Request) -> Iterator[None]:
        address = address_of(request)
        # No await between check and count: otherwise any number pass together.
        if self._open[address] >= self._most_of_address:
            raise ProblemError(
                kinds.STREAMS_OF_ADDRESS,
                f"{self._most_of_address} streams of this address are open; close one, or "
                "poll the list of rounds",
            )
        if self._open.total() >= self._most:
            raise ProblemError(
                kinds.STREAMS_EXHAUSTED,
                f"{self._most} streams are open; retry later",
            )
        self._open[address] += 1
        try:
            yield
        finally:
            self._open[address] -= 1
            self._open += Counter()  # without the addresses of which none is open


class _CountedStream(EventSourceResponse):
    """An uncached stream, counted until it has ended, even if its first event is never read."""

    def __init__(self, events: AsyncIterator[ServerSentEvent], place: ExitStack) -> None:
        super().__init__(events, headers={"Cache-Control": "no-store"}, ping=PING_SECONDS)
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._place:
            await super().__call__(scope, receive, send)


async def streamed(
    request: Request, begin: Callable[[], S], poll: Callable[[S], list[ServerSentEvent]]
) -> EventSourceResponse:
    """Stream what `poll` finds in what `begin` returns; a refusal of `begin` is the answer."""
    streams: Streams = request.app.state.streams
    with ExitStack() as reservation:
        reservation.enter_context(streams.reserve(request))
        state = await anyio.to_thread.run_sync(begin)

        async def events() -> AsyncIterator[ServerSentEvent]:
            while not streams.are_ending:
                for event in await anyio.to_thread.run_sync(poll, state):
                    yield event
                await anyio.sleep(POLL_SECONDS)

        return _CountedStream(events(), reservation.pop_all())


MEDIA_TYPE = "application/octet-stream"

_PIECE = 1 << 20
_RANGE = re.compile(r"bytes=([0-9]{0,19})-([0-9]{0,19})")


def send_blob(
    request: Request, stack: ExitStack, file: BufferedReader, size: int, headers: Mapping[str, str]
) -> Response:
    """Return a blob's bytes, or the requested range; takes `stack` over to read the file."""
    version = request.headers.get("if-range")
    asked = request.headers.get("range") if version in {None, headers["ETag"]} else None
    try:
        part = parse_range(asked, size)
    except ValueError as error:
        answer = problem(request, kinds.RANGE_UNSATISFIABLE, str(error))
        answer.headers["Content-Range"] = f"bytes */{size}"
        return answer
    status, sent, more = 200, part or range(size), {"Accept-Ranges": "bytes"}
    if part is not None:
        status = 206
        more["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{size}"
    file.seek(sent.start)
    pieces = _pieces(stack.pop_all(), file, len(sent))
    more["Content-Length"] = str(len(sent))
    return StreamingResponse(pieces, status, {**headers, **more}, MEDIA_TYPE)


def parse_range(header: str | None, size: int) -> range | None:
    """Return the one range that a request asks for (RFC 9110, section 14); else None: the whole."""
    match = _RANGE.fullmatch(header.strip()) if header is not None else None
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        first, end = max(0, size - int(match[2])), size
    else:
        first, end = int(match[1]), min(size, int(match[2]) + 1) if match[2] else size
        if match[2] and int(match[2]) < first:
            return None  # not a range at all: it is ignored
    if first >= end:
        raise ValueError(f"the blob has {size} bytes and does not include this range")
    return range(first, end)


def _pieces(stack: ExitStack, file: BufferedReader, size: int) -> Iterator[bytes]:
    with stack:
        remaining = size
        while remaining and (piece := file.read(min(_PIECE, remaining))):
            remaining -= len(piece)
            yield piece
