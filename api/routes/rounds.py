"""Rounds and their parts."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response

from api.answers.outcomes import Role, newest_round
from api.answers.round import (
    RoundView,
    aggregation_answer,
    committee_answer,
    round_answer,
    summary,
    updates_answer,
)
from api.answers.scanning import Walk, read_page
from api.answers.votes import scores_answer, votes_answer
from api.http.caching import respond
from api.http.problems import REQUEST_INVALID, FieldError, ProblemError
from api.http.routing import (
    INVALID,
    NOT_MODIFIED,
    NOT_SERVED,
    UNAVAILABLE,
    Address,
    ClientFilter,
    OrderQuery,
    Paged,
    RoundIndex,
    declared,
    refuse_unknown,
)
from api.reading import Now, require_client, require_round
from api.schemas.rounds import (
    AggregationAnswer,
    CommitteeAnswer,
    RoundAnswer,
    RoundsAnswer,
    ScoresAnswer,
    UpdatesAnswer,
    VotesAnswer,
)
from api.schemas.words import Status  # noqa: TC001 - FastAPI reads it
from ledger.audit.history import read_round
from ledger.chain.ports import NotServedError

router = APIRouter(
    prefix="/v1/deployments/{address}/rounds",
    tags=["rounds"],
    dependencies=[Depends(refuse_unknown)],
)
_PROBLEMS = NOT_MODIFIED | declared(
    _404="no such deployment is served, or the round has not opened",
    _422=INVALID,
    _502=NOT_SERVED,
    _503=UNAVAILABLE,
)


def _walk(
    order: OrderQuery = "newest",
    status: Annotated[
        Status | None, Query(description="only rounds that stand so", examples=["decided"])
    ] = None,
    client: ClientFilter = None,
    role: Annotated[
        Role | None,
        Query(description="what `client` was: sampled, on the committee, in S_a, or any of them"),
    ] = None,
) -> Walk:
    """Return which rounds are asked for.

    Raises:
        ProblemError: a role, but nobody to have it.
    """
    if role is not None and client is None:
        errors = [FieldError(place="query", name="role", detail="needs `client`")]
        raise ProblemError(REQUEST_INVALID, "query role: needs `client`", errors)
    return Walk("rounds", order, status, client, role or "any")


Walked = Annotated[Walk, Depends(_walk)]


def _view(reading: Now, address: Address, number: RoundIndex) -> RoundView:
    """Return the round that a path names.

    Raises:
        ProblemError: there is no such deployment or round.
        NotServedError: the chain's answers about it do not fit together.
    """
    served = reading.deployment(address)
    last = reading.block.number
    history = read_round(served.ledger, served.sizes, number, reading.service.blobs, last)
    if history is None or history.ended is None:
        require_round(number, newest_round(served, last))
    if history is None:
        raise NotServedError(f"round {number} is said to have opened, but no log tells how")
    return RoundView(reading, served, history)


Viewed = Annotated[RoundView, Depends(_view)]


@router.get(
    "",
    summary="Rounds, page by page",
    response_model=RoundsAnswer,
    responses=NOT_MODIFIED
    | declared(
        _400="the cursor is cut, altered or another query's",
        _404="no such deployment is served, or the filter's client is not registered",
        _422=INVALID,
        _502=NOT_SERVED,
        _503=UNAVAILABLE,
    ),
)
def rounds(request: Request, reading: Now, address: Address, page: Paged, walk: Walked) -> Response:
    """List rounds in order of their numbers; each once, also while new ones appear.

    This is what the contract's events say; the models behind the digests are not verified here.
    """
    served = reading.deployment(address)
    if walk.client is not None:
        require_client(walk.client, served.sizes.clients)
    found = read_page(served, walk, page.limit, page.cursor, reading.block.number)
    answer = RoundsAnswer(
        as_of=reading.as_of,
        rounds=tuple(summary(outcome, served) for outcome in found.outcomes),
        scanned=found.scanned,
        next_cursor=found.next_cursor,
    )
    return respond(request, reading, answer)


@router.get("/{number}", summary="One round", response_model=RoundAnswer, responses=_PROBLEMS)
def one_round(request: Request, view: Viewed) -> Response:
    """Tell a round in numbers, with links to its parts.

    The contract has enforced what its events say; that record and incidents are true is not
    verified here.
    """
    immutable = view.is_final and view.is_recorded and view.has_incidents
    return respond(request, view.reading, round_answer(view), immutable=immutable)


@router.get(
    "/{number}/updates",
    summary="What became of each trainer's update",
    response_model=UpdatesAnswer,
    responses=_PROBLEMS,
)
def updates(request: Request, view: Viewed) -> Response:
    """Tell for each sampled trainer: commitment, payload, rank, distance, and its outcome.

    Nobody who was banned when the round opened is sampled. Payload digests and the reasons of
    dropouts are the round's record's; that they are true, and that each payload opens its
    commitment, is not verified here.
    """
    immutable = view.is_final and view.is_recorded
    return respond(request, view.reading, updates_answer(view), immutable=immutable)


@router.get(
    "/{number}/scores",
    summary="The members' signed score claims",
    response_model=ScoresAnswer,
    responses=_PROBLEMS,
)
def scores(
    request: Request,
    view: Viewed,
    include: Annotated[
        Literal["vectors"] | None, Query(description="show the score vectors too")
    ] = None,
) -> Response:
    """List counted and refused score claims as the round's record has them.

    Neither signatures nor distances nor the reasons of refusals are verified here.
    """
    answer, whole = scores_answer(view, with_vectors=include == "vectors")
    immutable = view.is_final and view.is_recorded and whole
    return respond(request, view.reading, answer, immutable=immutable)


@router.get(
    "/{number}/votes",
    summary="Both certificates, with all signatures",
    response_model=VotesAnswer,
    responses=_PROBLEMS,
)
def votes(request: Request, view: Viewed) -> Response:
    """Tell who voted, from the call data of `decide`, and what is said to have gone wrong before.

    The contract has verified the certificates. The incidents are what the decision's sender says,
    bound by no vote: silence cannot be proven, the evidence of other kinds is not verified here.
    """
    immutable = view.is_final and view.has_incidents
    return respond(request, view.reading, votes_answer(view), immutable=immutable)


@router.get(
    "/{number}/committee",
    summary="The committee and the next one",
    response_model=CommitteeAnswer,
    responses=_PROBLEMS,
)
def committee(request: Request, view: Viewed) -> Response:
    """List the members by their places; a member that was banned before has an empty seat.

    That each payload opens its commitment is not verified here.
    """
    immutable = view.is_final and view.is_recorded
    return respond(request, view.reading, committee_answer(view), immutable=immutable)


@router.get(
    "/{number}/aggregation",
    summary="What was aggregated",
    response_model=AggregationAnswer,
    responses=_PROBLEMS,
)
def aggregation(request: Request, view: Viewed) -> Response:
    """Tell S_a with its weights, and all that the result that was voted on binds.

    That the model follows from the updates is not verified here.
    """
    immutable = view.is_final and view.is_recorded
    return respond(request, view.reading, aggregation_answer(view), immutable=immutable)
