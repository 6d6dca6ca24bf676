"""Server-sent events: how many streams are open, from where one goes on, and what each answers."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from fastapi import Header
from sse_starlette import EventSourceResponse

from api.http.problems import STREAMS_EXHAUSTED, ProblemError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from sse_starlette import ServerSentEvent

PING_SECONDS = 15
LOOK_SECONDS = 0.5

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
    """How many streams are open at once.

    Attributes:
        are_ending: the service ends, and no stream goes on.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open = 0
        self.are_ending = False

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Count a stream while it is open."""
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1

    def require_room(self) -> None:
        """Refuse a stream that is one too many.

        Raises:
            ProblemError: as many as there may be are open.
        """
        if self._open >= self._most:
            raise ProblemError(STREAMS_EXHAUSTED, f"{self._most} streams are open already")


def streamed(told: AsyncIterator[ServerSentEvent]) -> EventSourceResponse:
    """Return the answer that tells events as they come, and that nobody keeps.

    Args:
        told: the events.
    """
    return EventSourceResponse(told, headers={"Cache-Control": "no-store"}, ping=PING_SECONDS)
