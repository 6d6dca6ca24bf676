"""Endpoints of a run: its series, its training, its events, and its open round."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, cast

from fastapi import Request, Response
from sse_starlette import EventSourceResponse, ServerSentEvent

from api.http import answers as kinds
from api.http.answers import ProblemError, RequestView, encoded, to_rooted_json
from api.http.endpoints import OF_DEPLOYMENT, Address, OneChain, RoundsQuery, of_deployment, success
from api.http.streams import LastEventId, streamed
from api.schemas import FederationAnswer
from ledger.history.answers_rounds import RoundFollower, SeriesAnswer, chart_points, series_response
from ledger.history.training import TrainingAnswer

if TYPE_CHECKING:
    from api.federation import FederationMonitor, FederationSnapshot

_runs = of_deployment()
ROUTES = _runs.routes


@_runs.answers("/series", "A run over its rounds", SeriesAnswer, OF_DEPLOYMENT)
def read_series(reading: OneChain, address: Address) -> Response:
    """Return columns for charts: accepted updates, views, committees; and accuracy as a claim.

    `claimed` comes from the run's own files. It is not proven, and the audit does not check it. A
    run of over 2,000 rounds is thinned evenly, and keeps its last round.
    """
    served = reading.deployment(address)
    history = reading.chain.history(served)
    points = history.some(chart_points(history.newest()))
    return reading.respond(series_response(points, served.folder))


@_runs.answers(
    "/training",
    "Updates that auditors have repeated",
    TrainingAnswer,
    (*OF_DEPLOYMENT, kinds.BUSY, kinds.MAILBOX_UNREADABLE),
)
def read_training(reading: OneChain, address: Address, rounds: RoundsQuery) -> Response:
    """Return each update of ended rounds with its auditors' verdicts, and those that disagree.

    An attestation is its auditor's word, whom anybody can be: this service checks its signature,
    and no update. An answer ends with the round in which it has 5,000 updates, or has taken 5
    seconds; `next_from` says where the next one begins. New attestations come without a new block,
    about old rounds, too: no answer is immutable, and its ETag changes with what it says.
    """
    federations = federations_of(reading.request)
    return reading.respond(federations.coverage(reading, address, (rounds.first, rounds.last)))


@_runs.answers(
    "/events",
    "Live events",
    None,
    (*OF_DEPLOYMENT, kinds.STREAMS_EXHAUSTED, kinds.STREAMS_OF_ADDRESS),
    media=success(
        "text/event-stream",
        "events `round_opened` and `round_ended` with a round's line, `taken_back` with "
        "`from_round`; the `id` is the last round that has ended",
        type="string",
    ),
    tagged=False,
    response_class=EventSourceResponse,
)
async def follow_rounds(
    reading: OneChain, address: Address, last_event_id: LastEventId = None
) -> EventSourceResponse:
    """Send an event for each round that opens or ends; a client that reconnects misses none.

    Events about a block that is not final may be taken back: `taken_back` names the first round to
    discard, and the rounds from there are sent again.
    """
    request = reading.request

    def begin() -> RoundFollower:
        if last_event_id is not None:
            reading.deployment(address)
            return RoundFollower(int(last_event_id))
        history = reading.history(address)
        newest = history.round(history.newest())
        if newest is None or newest.ended is not None:
            return RoundFollower(history.newest())
        return RoundFollower(newest.round - 1)

    def poll(follower: RoundFollower) -> list[ServerSentEvent]:
        now = RequestView(request)
        return [
            ServerSentEvent(
                data=to_rooted_json(request, news.response).decode(),
                event=news.kind,
                id=str(news.position),
            )
            for news in follower.poll(now.history(address), now.chain.final)
        ]

    return await streamed(request, begin, poll)


_OF_FEDERATION = (*OF_DEPLOYMENT, kinds.FEDERATION_NOT_WATCHED, kinds.BLOB_NOT_FOUND, kinds.BUSY)


@_runs.answers(
    "/federation",
    "Each client's part in the open round, and late clients",
    FederationAnswer,
    _OF_FEDERATION,
)
def read_federation(reading: OneChain, address: Address) -> Response:
    """Return the open round's stage, each client's part by the evidence, and the last rounds.

    Commitments and bans come from the chain; payloads, scores and votes from validly signed mail.
    No worker's own claim is used, and being late proves nothing: mail may be on its way. The answer
    is as of the newest block, final or not, and at most a second old. It needs a service with a
    mailbox.
    """
    snapshot = federations_of(reading.request).snapshot(reading, address)
    return encoded(reading.request, to_rooted_json(reading.request, snapshot.answer))


@_runs.answers(
    "/federation/events",
    "The open round, as it goes on",
    None,
    (*_OF_FEDERATION, kinds.STREAMS_EXHAUSTED, kinds.STREAMS_OF_ADDRESS),
    media=success(
        "text/event-stream",
        "events `standing`, each with the whole answer of `federation`: the first at once, then "
        "whenever there is more to tell than the time",
        type="string",
    ),
    tagged=False,
    response_class=EventSourceResponse,
)
async def follow_federation(reading: OneChain, address: Address) -> EventSourceResponse:
    """Send the status of the open round whenever it changes; earlier events are not repeated."""
    request, federations = reading.request, federations_of(reading.request)
    last: FederationSnapshot | None = None

    def poll(first: FederationSnapshot) -> list[ServerSentEvent]:
        nonlocal last
        snapshot = last or first
        if last is not None:
            # What cannot be read now is shown as it was; the next look may succeed.
            with suppress(ProblemError):
                snapshot = federations.snapshot(RequestView(request), address)
        if not snapshot.differs_from(last):
            return []
        last = snapshot
        data = to_rooted_json(request, snapshot.answer).decode()
        return [ServerSentEvent(data=data, event="standing")]

    return await streamed(request, lambda: federations.snapshot(reading, address), poll)


def federations_of(request: Request) -> FederationMonitor:
    """Return the federations that a service watches."""
    return cast("FederationMonitor", request.app.state.federations)
