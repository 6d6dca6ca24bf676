"""Server-sent events about the rounds of a deployment."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from fastapi import Request
from sse_starlette import EventSourceResponse, ServerSentEvent

from api.http.openapi import OF_DEPLOYMENT, declared
from api.http.parameters import Address, OneChain, of_deployment
from api.http.problems import STREAMS_EXHAUSTED, STREAMS_OF_ADDRESS
from api.http.request_view import RequestView, histories_of
from api.http.root_path import to_rooted_json
from api.http.streams import POLL_SECONDS, LastEventId, Streams, streamed
from ledger.history.following import RoundFollower, RoundNews

if TYPE_CHECKING:
    from ledger.history.pinned_chain import HistoryService

events_router = of_deployment("/events")


@events_router.get(
    "",
    summary="What happens, as it happens",
    operation_id="follow_rounds",
    response_class=EventSourceResponse,
    responses=declared(*OF_DEPLOYMENT, STREAMS_EXHAUSTED, STREAMS_OF_ADDRESS, tagged=False)
    | {
        200: {
            "description": "events `round_opened` and `round_ended` with a round's line, "
            "`taken_back` with `from_round`; the `id` is the last round that has ended",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    },
)
async def events(
    request: Request, reading: OneChain, address: Address, last_event_id: LastEventId = None
) -> EventSourceResponse:
    """Send an event for each round that opens or ends; a client that reconnects misses none.

    Events about a block that is not final may be taken back: `taken_back` names the first round to
    discard, and the rounds from there are sent again.
    """
    streams: Streams = request.app.state.streams
    with ExitStack() as reservation:
        reservation.enter_context(streams.reserve(request))
        if last_event_id is None:
            start = await anyio.to_thread.run_sync(_last_ended, reading, address)
        else:
            await anyio.to_thread.run_sync(reading.deployment, address)
            start = int(last_event_id)
        follower, histories = RoundFollower(start), histories_of(request)

        async def stream() -> AsyncIterator[ServerSentEvent]:
            while not streams.are_ending:
                for event in await anyio.to_thread.run_sync(_poll, histories, address, follower):
                    yield ServerSentEvent(
                        data=to_rooted_json(request, event.response).decode(),
                        event=event.kind.value,
                        id=str(event.position),
                    )
                await anyio.sleep(POLL_SECONDS)

        return streamed(stream(), reservation)


def _last_ended(reading: RequestView, address: str) -> int:
    """Return the number of the last round that has ended, 0 before the first."""
    history = reading.history(address)
    newest = history.newest()
    if newest == 0:
        return 0
    return newest if history.rounds(newest, newest)[0].ended is not None else newest - 1


def _poll(histories: HistoryService, address: str, follower: RoundFollower) -> list[RoundNews]:
    reading = RequestView(histories)
    return follower.poll(reading.history(address), reading.chain.final)
