"""Responses about clients and the rounds that they took part in."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ledger.history.responses.evidence import Ban
from ledger.history.responses.fields import (
    Answer,
    Client,
    CommitmentWord,
    Count,
    DropoutWhy,
    Eip55,
    Links,
    NextCursor,
    Payload,
    Place,
    Response,
    Role,
    RoundNumber,
    Status,
    TrainerOutcome,
    Uint,
)
from ledger.history.responses.rounds import Duties, EndBlock, Placed


class ClientCounts(Response):
    """Counts over the ended rounds, including abandoned ones."""

    sampled: Annotated[Count, Field(description="rounds in which it was drawn as a trainer")]
    ranked: Annotated[Count, Field(description="rounds whose decision ranks it")]
    accepted: Annotated[Count, Field(description="rounds in which its update entered the model")]
    dropped_out: Annotated[
        Count, Field(description="rounds in which it was sampled, and a decision does not rank it")
    ]
    served: Annotated[Count, Field(description="rounds in which it was a member with a seat")]
    scored: Annotated[Count, Field(description="rounds in which its scores counted")]
    refused: Annotated[Count, Field(description="rounds in which its scores were refused")]
    voted: Annotated[
        Count, Field(description="phases whose deciding certificate it signed, of two in a round")
    ]
    primary: Annotated[Count, Field(description="phases that were decided with it as the primary")]
    incidents: Annotated[Count, Field(description="that decisions' senders name; bound by no vote")]


class ClientEntry(ClientCounts):
    """One registered client with its counts."""

    client: Client
    address: Eip55
    samples: Annotated[Uint, Field(description="n_k as registered", examples=["119"])]
    banned_in_round: Annotated[
        int | None,
        Field(
            description="the round whose course holds the ban, which counts from the next round "
            "on; null if not banned",
            examples=[3],
        ),
    ]
    links: Links


class CountedRounds(Response):
    """The rounds that the counts cover."""

    ended_rounds: Annotated[Count, Field(description="rounds that the counts are of")]
    records_missing: Annotated[
        Count,
        Field(
            description="decided rounds whose record is not there: whose scores counted is not "
            "known of them",
            examples=[0],
        ),
    ]


class ClientsPage(CountedRounds):
    """A page of clients, ascending."""

    clients: list[ClientEntry]
    next_cursor: NextCursor


class ClientsAnswer(Answer, ClientsPage):
    """A page of clients, ascending."""


class OneClient(CountedRounds):
    """One client."""

    client: ClientEntry
    ban: Annotated[
        Ban | None,
        Field(
            description="what the client was banned for; null if it is not banned, or if the run "
            "ended before the round of the ban opened"
        ),
    ]


class ClientAnswer(Answer, OneClient):
    """One client."""


class ClientRound(Duties, Placed):
    """One client's part in one round."""

    round: RoundNumber
    status: Status
    role: Role
    place: Place | None
    empty_seat: Annotated[
        bool, Field(description="whether it is a member that was banned before", examples=[False])
    ]
    committed: Annotated[
        bool | None, Field(description="whether its commitment came in time", examples=[True])
    ]
    commitment: CommitmentWord
    payload: Payload
    outcome: Annotated[TrainerOutcome | None, Field(description="null for a member")]
    reason: Annotated[
        DropoutWhy | None, Field(description="why it has no usable update, if that is told")
    ]
    banned: Annotated[
        bool, Field(description="whether a ban of it was recorded in the round", examples=[False])
    ]
    ended: EndBlock | None
    links: Links


class ClientRoundsPage(Response):
    """A page of the rounds that a client took part in."""

    rounds: list[ClientRound]
    scanned: Annotated[
        Count, Field(description="rounds that this page examined; a page may be short of `limit`")
    ]
    next_cursor: NextCursor


class ClientRoundsAnswer(Answer, ClientRoundsPage):
    """A page of a client's rounds; one page examines a limited number of rounds."""
