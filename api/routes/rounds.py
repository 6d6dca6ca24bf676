"""Endpoints of rounds, their parts, series and training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, cast

from fastapi import Depends, Query, Request, Response
from pydantic import BeforeValidator

from api.http.answers import (
    BUSY,
    CLIENT_NOT_FOUND,
    MAILBOX_UNREADABLE,
    VOTES_NOT_FOUND,
    ProblemError,
    RequestView,
    histories_of,
    require_client,
    require_round,
    respond,
)
from api.http.export import EXPORTED, PAGE, Format, FormatQuery, exported
from api.http.openapi import OF_DEPLOYMENT, OF_PAGE, OF_ROUND, declared
from api.http.parameters import (
    MAX_INDEX,
    Address,
    AskedOf,
    ChainName,
    OneChain,
    OrderQuery,
    Paged,
    RoundIndex,
    Within,
    of_deployment,
    whole_number,
)
from ledger.chain.round_ledger import RecordedEvent
from ledger.history import serialise_rounds
from ledger.history import serialise_rounds as round_responses
from ledger.history.answers import SeriesAnswer, TrainingAnswer
from ledger.history.answers_rounds import (
    AggregationAnswer,
    CommitteeAnswer,
    ExplanationAnswer,
    RoundAnswer,
    RoundDetails,
    RoundsAnswer,
    RoundsPage,
    RoundVotes,
    ScoresAnswer,
    UpdatesAnswer,
    VotesAnswer,
)
from ledger.history.export import ROUNDS
from ledger.history.queries import Order, RoundQuery, RoundStatus
from ledger.history.serialise import chart_rounds, series_response
from ledger.history.serialise_rounds import DocumentedRound

if TYPE_CHECKING:
    from api.federation.coverage import CoverageReader


rounds_router = of_deployment("/rounds")
_PROBLEMS = declared(*OF_ROUND)


async def _walk(
    asked: AskedOf,
    within: Within,
    order: OrderQuery = Order.NEWEST,
    status: Annotated[
        RoundStatus | None, Query(description="only rounds that stand so", examples=["decided"])
    ] = None,
    view_min: Annotated[
        int,
        Query(
            ge=0,
            le=MAX_INDEX,
            description="only rounds decided in this view, from 0, or a later one",
            examples=[1],
        ),
        BeforeValidator(whole_number),
    ] = 0,
) -> RoundQuery:
    blocks, times = within
    return RoundQuery("rounds", order, status, *asked, view_min, blocks, times)


Walked = Annotated[RoundQuery, Depends(_walk)]


class RoundRequest:
    """A request for one round, which is read once, when it is first needed."""

    def __init__(self, reading: RequestView, address: str, number: int) -> None:
        self.reading = reading
        self._address = address
        self._number = number
        self._view: DocumentedRound | None = None

    @property
    def view(self) -> DocumentedRound:
        """The round with its documents."""
        if self._view is None:
            self._view = self._read()
        return self._view

    def _read(self) -> DocumentedRound:
        history = self.reading.history(self._address)
        round_ = require_round(history, self._number)
        return DocumentedRound.of(history, round_)

    @property
    def end_with_record(self) -> RecordedEvent | None:
        return self.view.round.ended if self.view.has_record else None

    @property
    def end_with_incidents(self) -> RecordedEvent | None:
        return self.view.round.ended if self.view.documents.has_incidents else None

    @property
    def end_with_both(self) -> RecordedEvent | None:
        return self.end_with_record if self.view.documents.has_incidents else None


async def _round_request(
    request: Request, address: Address, number: RoundIndex, chain: ChainName
) -> RoundRequest:
    return RoundRequest(RequestView(histories_of(request), chain), address, number)


OneRound = Annotated[RoundRequest, Depends(_round_request)]


@rounds_router.get(
    "",
    summary="Rounds, page by page",
    operation_id="list_rounds",
    response_model=RoundsAnswer,
    responses=EXPORTED | declared(*OF_PAGE, CLIENT_NOT_FOUND),
)
def rounds(
    request: Request,
    reading: OneChain,
    address: Address,
    page: Paged,
    walk: Walked,
    full: Annotated[
        bool, Query(description="tell each round whole, as `/rounds/{number}?full=true` does")
    ] = False,
    format: FormatQuery = Format.JSON,  # noqa: A002 - the query's own word
) -> Response:
    """List rounds in the order of their numbers; each once, even while new ones open.

    The data come from the contract's events; the models behind the digests are not verified here.
    """
    history = reading.history(address)
    if walk.client is not None:
        require_client(walk.client, history.fixed.clients)

    def read(limit: int, cursor: str | None, *, full: bool) -> RoundsPage:
        page = history.page(walk, limit, cursor)
        return round_responses.rounds_page(history, page, full=full)

    if format is not Format.JSON:
        return exported(reading, ROUNDS, lambda cursor: read(PAGE, cursor, full=False))
    return respond(request, reading, read(page.limit, page.cursor, full=full))


@rounds_router.get(
    "/{number}",
    summary="One round",
    operation_id="read_round",
    response_model=RoundAnswer,
    responses=_PROBLEMS,
)
def one_round(
    request: Request,
    asked: OneRound,
    full: Annotated[
        bool, Query(description="tell all parts too, but for the score vectors")
    ] = False,
) -> Response:
    """Return a round in numbers, with links to its parts, or whole.

    The contract has enforced its events; that record and incidents are true is not verified here.
    """
    view = asked.view
    response: RoundDetails = (
        {**round_responses.full_round(view)}
        if full
        else {**round_responses.round_numbers(view), "parts": None}
    )
    return respond(request, asked.reading, response, ended=asked.end_with_both)


@rounds_router.get(
    "/{number}/explanation",
    summary="One round in plain words",
    operation_id="explain_round",
    response_model=ExplanationAnswer,
    responses=_PROBLEMS,
)
def explanation(request: Request, asked: OneRound) -> Response:
    """Explain in sentences the accepted and refused updates, the votes and the election.

    The sentences report chain and record; whether these are true is not verified here. Missing
    payloads are reported as of now.
    """
    return respond(request, asked.reading, round_responses.explanation(asked.view))


@rounds_router.get(
    "/{number}/updates",
    summary="What became of each trainer's update",
    operation_id="read_updates",
    response_model=UpdatesAnswer,
    responses=_PROBLEMS,
)
def updates(request: Request, asked: OneRound) -> Response:
    """Return for each sampled trainer: commitment, payload, rank, distance and outcome.

    A client that was banned when the round opened is not sampled. Payload digests and dropout
    reasons come from the round's record; that they are true, and that each payload opens its
    commitment, is not verified here.
    """
    updates = serialise_rounds.updates(asked.view)
    return respond(request, asked.reading, updates, ended=asked.end_with_record)


@rounds_router.get(
    "/{number}/scores",
    summary="The members' signed score claims",
    operation_id="read_scores",
    response_model=ScoresAnswer,
    responses=_PROBLEMS,
)
def scores(
    request: Request,
    asked: OneRound,
    include: Annotated[
        Literal["vectors"] | None, Query(description="show the score vectors too")
    ] = None,
) -> Response:
    """List counted and refused score claims from the round's record.

    Neither signatures nor distances nor the reasons of refusals are verified here.
    """
    scores, is_complete = serialise_rounds.scores(asked.view, with_vectors=include == "vectors")
    ended = asked.end_with_record if is_complete else None
    return respond(request, asked.reading, scores, ended=ended)


@rounds_router.get(
    "/{number}/votes",
    summary="Both certificates, with all signatures",
    operation_id="read_votes",
    response_model=VotesAnswer,
    responses=declared(*OF_ROUND, VOTES_NOT_FOUND),
)
def votes(request: Request, asked: OneRound) -> Response:
    """Return the certificates from the call data of `decide`, and the reported incidents.

    The contract has verified the certificates. The incidents are claims of the decision's sender,
    bound by no vote: silence cannot be proven, the evidence of other kinds is not verified here.
    """
    return respond(request, asked.reading, _votes(asked.view), ended=asked.end_with_incidents)


@rounds_router.get(
    "/{number}/committee",
    summary="The committee and the next one",
    operation_id="read_committee",
    response_model=CommitteeAnswer,
    responses=_PROBLEMS,
)
def committee(request: Request, asked: OneRound) -> Response:
    """List the members by seat index; a member that was banned before has an empty seat.

    That each payload opens its commitment is not verified here.
    """
    committee = serialise_rounds.committee(asked.view)
    return respond(request, asked.reading, committee, ended=asked.end_with_both)


@rounds_router.get(
    "/{number}/aggregation",
    summary="What was aggregated",
    operation_id="read_aggregation",
    response_model=AggregationAnswer,
    responses=_PROBLEMS,
)
def aggregation(request: Request, asked: OneRound) -> Response:
    """Return S_a with its weights, and all that the voted result binds.

    That the model follows from the updates is not verified here.
    """
    aggregation = serialise_rounds.aggregation(asked.view)
    return respond(request, asked.reading, aggregation, ended=asked.end_with_record)


def _votes(view: DocumentedRound) -> RoundVotes:
    """Return the certificates."""
    votes = serialise_rounds.votes(view)
    if votes["certificates"] is None:
        detail = "the transaction is not to the contract: an account with code of its own called it"
        raise ProblemError(VOTES_NOT_FOUND, detail)
    return votes


series_router = of_deployment("/series")


@series_router.get(
    "",
    summary="A run over its rounds",
    operation_id="read_series",
    response_model=SeriesAnswer,
    responses=declared(*OF_DEPLOYMENT),
)
def series(request: Request, reading: OneChain, address: Address) -> Response:
    """Return columns for charts: accepted updates, views, committees; and accuracy as a claim.

    `claimed` comes from the run's own files. It is not proven, and the audit does not check it. A
    run of over 2,000 rounds is thinned evenly, and keeps its last round.
    """
    served = reading.deployment(address)
    points = chart_rounds(reading.chain.history(served))
    return respond(request, reading, series_response(points, served.folder))


training_router = of_deployment("/training")


@training_router.get(
    "",
    summary="Which updates auditors have repeated",
    operation_id="read_training",
    response_model=TrainingAnswer,
    responses=declared(*OF_DEPLOYMENT, BUSY, MAILBOX_UNREADABLE),
)
def training(
    request: Request,
    reading: OneChain,
    address: Address,
    first: Annotated[
        int | None,
        Query(alias="from", ge=1, le=MAX_INDEX, description="first round; else the first"),
        BeforeValidator(whole_number),
    ] = None,
    last: Annotated[
        int | None,
        Query(alias="to", ge=1, le=MAX_INDEX, description="last round; else the newest"),
        BeforeValidator(whole_number),
    ] = None,
) -> Response:
    """Return each update of ended rounds with its auditors' verdicts, and those that disagree.

    An attestation is its auditor's word, whom anybody can be: this service checks its signature,
    and no update. An answer ends with the round in which it has 5,000 updates, or has taken 5
    seconds; `next_from` says where the next one begins. New attestations come without a new block,
    about old rounds, too: no answer is immutable, and its ETag changes with what it says.
    """
    coverage = cast("CoverageReader", request.app.state.coverage)
    return respond(request, reading, coverage.read(reading, address, (first, last)))
