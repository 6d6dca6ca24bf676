"""Server-sent events: the limit on open streams, and the start of one after a reconnect."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated

from fastapi import Header
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import AppStatus
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from api.http.access import address_of
from api.http.problems import STREAMS_EXHAUSTED, STREAMS_OF_ADDRESS, ProblemError

# The library would end the streams of each later server of a process once one was interrupted.
# `Streams.are_ending` ends those of one server.
AppStatus.enable_automatic_graceful_drain = False

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
    """The number of open streams by address; used by the event loop's thread alone.

    Args:
        most_of_address: of one address, or of one /64 network.

    Attributes:
        are_ending: the service shuts down, and every stream must end.
    """

    def __init__(self, most: int, most_of_address: int) -> None:
        self._most = most
        self._most_of_address = most_of_address
        self._open: Counter[str] = Counter()
        self.are_ending = False

    @contextmanager
    def reserve(self, request: Request) -> Iterator[None]:
        """Count a stream until it has ended."""
        address = address_of(request.scope)
        # No await between check and count: otherwise any number pass together.
        if self._open[address] >= self._most_of_address:
            raise ProblemError(
                STREAMS_OF_ADDRESS,
                f"{self._most_of_address} streams of this address are open already; close one, or "
                f"read the same from the list of rounds",
            )
        if self._open.total() >= self._most:
            raise ProblemError(STREAMS_EXHAUSTED, f"{self._most} streams are open already")
        self._open[address] += 1
        try:
            yield
        finally:
            self._open[address] -= 1
            self._open += Counter()  # without the addresses of which none is open


class _CountedStream(EventSourceResponse):
    """A stream that is counted until it has ended, even if its first event is never read."""

    def __init__(self, events: AsyncIterator[ServerSentEvent], place: ExitStack) -> None:
        super().__init__(events, headers={"Cache-Control": "no-store"}, ping=PING_SECONDS)
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._place:
            await super().__call__(scope, receive, send)


def streamed(events: AsyncIterator[ServerSentEvent], reservation: ExitStack) -> EventSourceResponse:
    """Return an uncached answer with events; its reservation is released when the stream ends."""
    return _CountedStream(events, reservation.pop_all())
