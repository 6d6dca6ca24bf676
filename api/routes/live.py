"""Endpoints of a live run: events and the open round."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, cast

import anyio
import anyio.to_thread
from fastapi import Request, Response
from sse_starlette import EventSourceResponse, ServerSentEvent

from api.http.answers import (
    BLOB_NOT_FOUND,
    BUSY,
    FEDERATION_NOT_WATCHED,
    STREAMS_EXHAUSTED,
    STREAMS_OF_ADDRESS,
    ProblemError,
    RequestView,
    encoded,
    histories_of,
    to_rooted_json,
)
from api.http.openapi import OF_DEPLOYMENT, declared
from api.http.parameters import Address, OneChain, of_deployment
from api.http.streams import POLL_SECONDS, LastEventId, Streams, streamed
from api.schemas.federation import FederationAnswer
from ledger.history.local import RoundFollower, RoundNews

if TYPE_CHECKING:
    from api.federation.monitor import FederationMonitor, FederationSnapshot
    from ledger.history.deployments import HistoryService


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


federation_router = of_deployment("/federation")

_OF_FEDERATION = (*OF_DEPLOYMENT, FEDERATION_NOT_WATCHED, BLOB_NOT_FOUND, BUSY)


@federation_router.get(
    "",
    summary="Who has done what in the open round, and who is late",
    operation_id="read_federation",
    response_model=FederationAnswer,
    responses=declared(*_OF_FEDERATION),
)
def federation(request: Request, reading: OneChain, address: Address) -> Response:
    """Return the open round's stage, each client's part by the evidence, and the last rounds.

    Commitments and bans come from the chain; payloads, scores and votes from validly signed mail.
    No worker's own claim is used, and being late proves nothing: mail may be on its way. The answer
    is as of the newest block, final or not, and at most a second old. It needs a service with a
    mailbox.
    """
    snapshot = federations_of(request).snapshot(reading, address)
    return encoded(request, to_rooted_json(request, snapshot.answer))


@federation_router.get(
    "/events",
    summary="The open round, as it goes on",
    operation_id="follow_federation",
    response_class=EventSourceResponse,
    responses=declared(*_OF_FEDERATION, STREAMS_EXHAUSTED, STREAMS_OF_ADDRESS, tagged=False)
    | {
        200: {
            "description": "events `standing`, each with the whole answer of `federation`: the "
            "first at once, then whenever there is more to tell than the time",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    },
)
async def federation_events(
    request: Request, reading: OneChain, address: Address
) -> EventSourceResponse:
    """Send the status of the open round whenever it changes; earlier events are not repeated."""
    streams: Streams = request.app.state.streams
    with ExitStack() as reservation:
        reservation.enter_context(streams.reserve(request))
        federations, histories = federations_of(request), histories_of(request)
        first = await anyio.to_thread.run_sync(federations.snapshot, reading, address)

        async def stream() -> AsyncIterator[ServerSentEvent]:
            last: FederationSnapshot | None = None
            snapshot = first
            while not streams.are_ending:
                if snapshot.differs_from(last):
                    last = snapshot
                    data = to_rooted_json(request, snapshot.answer).decode()
                    yield ServerSentEvent(data=data, event="standing")
                await anyio.sleep(POLL_SECONDS)
                # What cannot be read now is shown as it was; the next look may succeed.
                with suppress(ProblemError):
                    now = RequestView(histories)
                    snapshot = await anyio.to_thread.run_sync(federations.snapshot, now, address)

        return streamed(stream(), reservation)


def federations_of(request: Request) -> FederationMonitor:
    """Return the federations that a service watches."""
    return cast("FederationMonitor", request.app.state.federations)
