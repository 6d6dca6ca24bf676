"""The open round of a live federation: who has done what, and who is late."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, cast

import anyio
import anyio.to_thread
from fastapi import Request, Response
from sse_starlette import EventSourceResponse, ServerSentEvent

from api.http.encoded_answer import encoded
from api.http.openapi import OF_DEPLOYMENT, declared
from api.http.parameters import Address, OneChain, of_deployment
from api.http.problems import (
    BLOB_NOT_FOUND,
    BUSY,
    FEDERATION_NOT_WATCHED,
    STREAMS_EXHAUSTED,
    STREAMS_OF_ADDRESS,
    ProblemError,
)
from api.http.request_view import RequestView, histories_of
from api.http.root_path import to_rooted_json
from api.http.streams import POLL_SECONDS, Streams, streamed
from api.schemas.federation import FederationAnswer

if TYPE_CHECKING:
    from api.federation.monitor import FederationMonitor, FederationSnapshot

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
