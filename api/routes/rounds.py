"""Endpoints of rounds and their parts, of clients, of evidence and of digests."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Depends, Path, Query, Request, Response

from api.http.answers import VOTES_NOT_FOUND, ProblemError, RequestView, invalid
from api.http.endpoints import (
    EXPORTED,
    IN_PLAIN_DIGITS,
    MAX_INDEX,
    OF_CLIENT,
    OF_CLIENT_PAGE,
    OF_PAGE,
    OF_ROUND,
    Address,
    ChainName,
    ClientFilter,
    ClientIndex,
    Format,
    Listed,
    OneChain,
    OrderQuery,
    Paged,
    RoundIndex,
    RoundsQuery,
    of_deployment,
)
from ledger.chain.round_ledger import RecordedEvent
from ledger.history import answers_parts, answers_rounds, answers_signed, export
from ledger.history.answers_clients import (
    ClientAnswer,
    ClientRoundsAnswer,
    ClientsAnswer,
    DigestAnswer,
)
from ledger.history.answers_parts import (
    AggregationAnswer,
    AnsweredRound,
    CommitteeAnswer,
    UpdatesAnswer,
    round_numbers,
)
from ledger.history.answers_rounds import ExplanationAnswer, RoundAnswer, RoundsAnswer, full_round
from ledger.history.answers_signed import EvidenceAnswer, ScoresAnswer, VotesAnswer
from ledger.history.fields import UNBOUNDED, AskedRole, EvidenceKind, Order, RoundQuery, Span
from ledger.history.round import RoundStatus
from ledger.protocol import types

_rounds, _clients = of_deployment("/rounds"), of_deployment("/clients", "clients")
_places = of_deployment()


async def _query(
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
        IN_PLAIN_DIGITS,
    ] = 0,
    client: ClientFilter = None,
    role: Annotated[
        AskedRole | None,
        Query(
            description="what `client` was or did: `any`, `trained`, `accepted`, `not_accepted`, "
            "`dropped_out`, `member`, `served` (a member with a seat), `refused` (its scores), "
            "`voted`",
            examples=["served"],
        ),
    ] = None,
    since_block: SinceBlock = None,
    until_block: UntilBlock = None,
    since: Since = None,
    until: Until = None,
    rounds: RoundsQuery = UNBOUNDED,
) -> RoundQuery:
    if role is not None and client is None:
        raise invalid("query", "role", "needs `client`")
    within = Span(since_block, until_block), Span(since, until), rounds
    return RoundQuery("rounds", order, status, client, role or AskedRole.ANY, view_min, *within)


def _bound(description: str) -> Any:
    return Query(ge=0, le=MAX_INDEX, description=description)


SinceBlock = Annotated[
    int | None, _bound("rounds that ended in this block or later"), IN_PLAIN_DIGITS
]
UntilBlock = Annotated[
    int | None, _bound("rounds that ended in this block or before"), IN_PLAIN_DIGITS
]
Since = Annotated[int | None, _bound("ended at this Unix time or later"), IN_PLAIN_DIGITS]
Until = Annotated[int | None, _bound("ended at this Unix time or before"), IN_PLAIN_DIGITS]


class RoundRequest:
    """A request for one round, which is read once, when it is first needed."""

    def __init__(self, reading: RequestView, address: str, number: int) -> None:
        self._reading, self._address, self._number = reading, address, number
        self._view: AnsweredRound | None = None

    @property
    def view(self) -> AnsweredRound:
        if self._view is None:
            history = self._reading.history(self._address)
            self._view = AnsweredRound.of(history, history.opened(self._number))
        return self._view

    def respond(
        self, answer: Any, *, is_final: bool = True, record: bool = False, incidents: bool = False
    ) -> Response:
        """Return an answer that can become final, or not, and may show record and incidents.

        It is final once the round is, if it shows all that it names.
        """
        is_whole = not (record and self.view.parts.lacks_record)
        is_whole &= not incidents or self.view.documents.has_incidents
        ended: RecordedEvent | None = self.view.round.ended if is_final and is_whole else None
        return self._reading.respond(answer, ended)


async def _round_request(
    request: Request, address: Address, number: RoundIndex, chain: ChainName
) -> RoundRequest:
    return RoundRequest(RequestView(request, chain), address, number)


OneRound = Annotated[RoundRequest, Depends(_round_request)]


@_rounds.answers("", "Rounds, page by page", RoundsAnswer, OF_CLIENT_PAGE, media=EXPORTED)
def list_rounds(
    reading: OneChain,
    address: Address,
    page: Listed,
    query: Annotated[RoundQuery, Depends(_query)],
    full: Annotated[
        bool, Query(description="tell each round whole, as `/rounds/{number}?full=true` does")
    ] = False,
    table: Annotated[
        Literal["rounds", "updates", "participation"],
        Query(description="which one, with `format=csv`", examples=["updates"]),
    ] = "rounds",
) -> Response:
    """List rounds in the order of their numbers; each once, even while new ones open.

    The data come from the contract's events; the models behind the digests are not verified here.
    """
    is_json = page.format is Format.JSON
    if is_json and table != "rounds":
        raise invalid("query", "table", f"{table} needs `format=csv`")
    is_full = full if is_json else table != "rounds"
    read = partial(reading.local(address).rounds, query, full=is_full)
    return page.answer(reading, getattr(export, table.upper()), read)


@_rounds.answers("/{number}", "One round", RoundAnswer, OF_ROUND)
def read_round(
    asked: OneRound,
    full: Annotated[bool, Query(description="include all parts except the score vectors")] = False,
) -> Response:
    """Return a round in numbers, with links to its parts, or whole.

    The contract has enforced its events; that record and incidents are true is not verified here.
    """
    view = asked.view
    answer = full_round(view) if full else {**round_numbers(view), "parts": None}
    return asked.respond(answer, record=True, incidents=True)


@_rounds.answers("/{number}/explanation", "One round in plain words", ExplanationAnswer, OF_ROUND)
def explain_round(asked: OneRound) -> Response:
    """Explain in sentences the accepted and refused updates, the votes and the election.

    The sentences report chain and record; whether these are true is not verified here. Missing
    payloads are reported as of now.
    """
    return asked.respond(answers_rounds.explanation(asked.view), is_final=False)


@_rounds.answers(
    "/{number}/updates", "The outcome of each trainer's update", UpdatesAnswer, OF_ROUND
)
def read_updates(asked: OneRound) -> Response:
    """Return for each sampled trainer: commitment, payload, rank, distance and outcome.

    A client that was banned when the round opened is not sampled. Payload digests and dropout
    reasons come from the round's record; that they are true, and that each payload opens its
    commitment, is not verified here.
    """
    return asked.respond(answers_parts.updates(asked.view), record=True)


@_rounds.answers("/{number}/scores", "The members' signed score claims", ScoresAnswer, OF_ROUND)
def read_scores(
    asked: OneRound,
    include: Annotated[
        Literal["vectors"] | None, Query(description="show the score vectors too")
    ] = None,
) -> Response:
    """List counted and refused score claims from the round's record.

    Neither signatures nor distances nor the reasons of refusals are verified here.
    """
    scores, is_complete = answers_signed.scores(asked.view, with_vectors=include == "vectors")
    return asked.respond(scores, is_final=is_complete, record=True)


@_rounds.answers(
    "/{number}/votes",
    "Both certificates, with all signatures",
    VotesAnswer,
    (*OF_ROUND, VOTES_NOT_FOUND),
)
def read_votes(asked: OneRound) -> Response:
    """Return the certificates from the call data of `decide`, and the reported incidents.

    The contract has verified the certificates. The incidents are claims of the decision's sender,
    bound by no vote: silence cannot be proven, the evidence of other kinds is not verified here.
    """
    votes = answers_signed.votes(asked.view)
    if votes["certificates"] is None:
        detail = "the transaction is not to the contract: an account with code of its own called it"
        raise ProblemError(VOTES_NOT_FOUND, detail)
    return asked.respond(votes, incidents=True)


@_rounds.answers("/{number}/committee", "The committee and the next one", CommitteeAnswer, OF_ROUND)
def read_committee(asked: OneRound) -> Response:
    """List the members by seat index; a member that was banned before has an empty seat.

    That each payload opens its commitment is not verified here.
    """
    return asked.respond(answers_parts.committee(asked.view), record=True, incidents=True)


@_rounds.answers("/{number}/aggregation", "The aggregation", AggregationAnswer, OF_ROUND)
def read_aggregation(asked: OneRound) -> Response:
    """Return S_a with its weights, and all that the voted result binds.

    That the model follows from the updates is not verified here.
    """
    return asked.respond(answers_parts.aggregation(asked.view), record=True)


@_clients.answers("", "Clients, page by page", ClientsAnswer, OF_PAGE, media=EXPORTED)
def list_clients(reading: OneChain, address: Address, page: Listed) -> Response:
    """List the registered clients by index, with counts over the ended rounds.

    A ban takes effect in the round after its own. Score outcomes and dropout reasons come from the
    rounds' records; `records_missing` counts the missing ones.
    """
    return page.answer(reading, export.CLIENTS, reading.local(address).clients)


@_clients.answers("/{number}", "One client", ClientAnswer, OF_CLIENT)
def read_client(reading: OneChain, address: Address, number: ClientIndex) -> Response:
    """Return a client's address, samples, ban and counts."""
    return reading.respond(reading.local(address).client(number))


@_clients.answers(
    "/{number}/rounds",
    "A client's rounds, page by page",
    ClientRoundsAnswer,
    OF_CLIENT_PAGE,
    media=EXPORTED,
)
def list_client_rounds(
    reading: OneChain,
    address: Address,
    number: ClientIndex,
    page: Listed,
    order: OrderQuery = Order.NEWEST,
    rounds: RoundsQuery = UNBOUNDED,
) -> Response:
    """List the rounds in which a client trained or served.

    One page examines a limited number of rounds: for a client that is seldom drawn, pages may be
    short or empty, with a cursor, until all rounds were examined.
    """
    query = RoundQuery(order=order, rounds=rounds)
    read = partial(reading.local(address).client_rounds, number, query)
    return page.answer(reading, export.CLIENT_ROUNDS, read)


@_places.answers(
    "/evidence",
    "Banned, refused and left-out clients, with reasons",
    EvidenceAnswer,
    OF_CLIENT_PAGE,
    media=EXPORTED,
)
def list_evidence(
    reading: OneChain,
    address: Address,
    page: Listed,
    order: OrderQuery = Order.NEWEST,
    client: ClientFilter = None,
    rounds: RoundsQuery = UNBOUNDED,
    kind: Annotated[EvidenceKind | None, Query(description="only entries of this kind")] = None,
) -> Response:
    """List bans, refused scores, incidents and dropouts with the statements that they rest on.

    A ban is proven: the contract has verified both statements. The reason of refused scores and of
    a dropout comes from the round's record, for which a quorum has voted. An incident is the claim
    of the decision's sender, with the accused's own signatures for wrong proposals and
    equivocation, and none for silence. Nothing of it is verified here.
    """
    query = RoundQuery("evidence", order, client=client, rounds=rounds, kind=kind)
    return page.answer(reading, export.EVIDENCE, partial(reading.local(address).evidence, query))


DigestAsked = Annotated[
    str,
    Path(
        description="64 hex digits in any case, as `sha256sum` prints them, or with 0x before them",
        pattern=f"^{types.EITHER_FORM_ANY_CASE}$",
        max_length=66,
        examples=["5c" * 32],
    ),
]


@_places.answers("/digests/{digest}", "Occurrences of a digest", DigestAnswer, OF_PAGE)
def find_digest(reading: OneChain, address: Address, digest: DigestAsked, page: Paged) -> Response:
    """Return the kind, the round and the client of each place of a digest or a hash.

    Files (payloads, models, score vectors, records, incidents, the configuration) by their sha256;
    commitments, seeds, roots, results, heads; hashes of blocks and of transactions. Payloads and
    score vectors are found through the rounds' records, where these are available. An unknown
    digest has no places.
    """
    sought = types.Digest(bytes.fromhex(digest.removeprefix("0x")))
    return reading.respond(reading.local(address).digest(sought, page.limit, page.cursor))


ROUTES = [*_rounds.routes, *_clients.routes, *_places.routes]
