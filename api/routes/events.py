"""What happens on a deployment, as it happens: server-sent events."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import anyio
import anyio.to_thread
from fastapi import APIRouter, Depends, Header, Request
from pydantic_core import to_json
from sse_starlette import EventSourceResponse, ServerSentEvent

from api.http.declared import OF_DEPLOYMENT, declared
from api.http.problems import STREAMS_EXHAUSTED, ProblemError
from api.http.routing import (
    Address,
    Now,
    refuse_unknown,
)
from api.reading import Reading, histories_of
from ledger.history.following import Event, Follower

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from ledger.history.now import Histories

router = APIRouter(
    prefix="/v1/chains/{chain}/deployments/{address}/events",
    tags=["rounds"],
    dependencies=[Depends(refuse_unknown)],
)

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


@router.get(
    "",
    summary="What happens, as it happens",
    operation_id="follow_rounds",
    response_class=EventSourceResponse,
    responses=declared(*OF_DEPLOYMENT, STREAMS_EXHAUSTED, tagged=False)
    | {
        200: {
            "description": "events `round_opened` and `round_ended` with a round's line, "
            "`taken_back` with `from_round`; the `id` is the last round that has ended",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    },
)
async def events(
    request: Request, reading: Now, address: Address, last_event_id: LastEventId = None
) -> EventSourceResponse:
    """Tell rounds as they open and end; a client that comes back misses none.

    What was told of a block that is not final may be taken back: `taken_back` says from which round
    on, and these rounds are told again.
    """
    streams: Streams = request.app.state.streams
    streams.require_room()
    if last_event_id is None:
        start = await anyio.to_thread.run_sync(_last_ended, reading, address)
    else:
        await anyio.to_thread.run_sync(reading.deployment, address)
        start = int(last_event_id)
    follower, histories = Follower(start), histories_of(request)

    async def told() -> AsyncIterator[ServerSentEvent]:
        with streams.one_more():
            while not streams.are_ending:
                for event in await anyio.to_thread.run_sync(_look, histories, address, follower):
                    yield ServerSentEvent(
                        data=to_json(event.facts).decode(),
                        event=event.kind.value,
                        id=str(event.position),
                    )
                await anyio.sleep(LOOK_SECONDS)

    return EventSourceResponse(
        told(), headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}, ping=15
    )


def _last_ended(reading: Reading, address: str) -> int:
    """Return the number of the last round that has ended, 0 before the first."""
    history = reading.now.history(reading.deployment(address))
    newest = history.newest()
    if newest == 0:
        return 0
    return newest if history.rounds(newest, newest)[0].ended is not None else newest - 1


def _look(histories: Histories, address: str, follower: Follower) -> list[Event]:
    reading = Reading(histories.now())
    return follower.look(reading.now.history(reading.deployment(address)), reading.now.final)
