"""Responses about the open round of a live federation."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ledger.actors.status import ActionKind, ParticipantRole, RoundStage
from ledger.history.answers_rounds import EndBlock
from ledger.history.fields import (
    Answer,
    BlockNumber,
    Client,
    Count,
    Digest32,
    Links,
    PhaseName,
    Place,
    Response,
    Rfc3339,
    RoundNumber,
    StageName,
    Status,
    UnixTime,
    one_of,
)
from ledger.protocol.parameters import MAX_VIEWS

ChainSeconds = Annotated[
    float, Field(ge=0, description="Unix seconds of the chain", examples=[1_767_225_612.5])
]
ViewNumber = Annotated[int, Field(ge=0, lt=MAX_VIEWS, description="v, from 0", examples=[1])]


class BlockInTime(Response):
    """A block and its time."""

    number: BlockNumber
    time: UnixTime
    at: Rfc3339


class CurrentView(Response):
    """The current view."""

    phase: PhaseName
    number: ViewNumber
    primary: Client
    begins: ChainSeconds
    ends: ChainSeconds


class CertifiedViews(Response):
    """The view in which each vote was certified."""

    aggregation: Annotated[ViewNumber | None, Field(description="null before", examples=[0])]
    election: Annotated[ViewNumber | None, Field(description="null before", examples=[1])]


class ScoredUpdates(Response):
    """A set of updates for which a member has signed a score vector."""

    clients: Annotated[Digest32, Field(description="set digest")]
    size: Annotated[
        Count | None, Field(description="clients in it; null where the vector is not one of it")
    ]


class SignedSlot(Response):
    """A slot in which a member has signed a vote."""

    kind: Literal["request", "reply"]
    phase: PhaseName
    view: ViewNumber
    different: Annotated[
        int, Field(ge=1, le=2, description="different votes in it; 2 is equivocation", examples=[1])
    ]


class PassedWithoutRequest(Response):
    """A view that passed without its primary's request."""

    phase: PhaseName
    view: ViewNumber


class AwaitedAct(Response):
    """An action that is expected from a client."""

    act: Annotated[str, one_of(act.value for act in ActionKind)]
    due: Annotated[
        ChainSeconds | None, Field(description="late from then on; null while a block decides")
    ]


class ActiveClient(Response):
    """An active client, by evidence in chain and mailbox; nothing is its own claim alone."""

    client: Client
    role: Annotated[
        str,
        one_of(role.value for role in ParticipantRole),
        Field(description="`empty_seat`: a member that was banned when the round opened"),
    ]
    place: Annotated[Place | None, Field(description="null for a trainer")]
    committed_block: Annotated[BlockNumber | None, Field(description="null without commitment")]
    counts: Annotated[
        bool | None,
        Field(description="whether it came by the closing block; null before", examples=[True]),
    ]
    payload: Annotated[
        Digest32 | None,
        Field(description="that opens its commitment and is announced; not fetched here"),
    ]
    scored: Annotated[list[ScoredUpdates], Field(description="the largest set first")]
    votes: Annotated[list[SignedSlot], Field(description="by phase and view")]
    equivocated: Annotated[
        bool, Field(description="two signed statements contradict each other", examples=[False])
    ]
    banned: Annotated[
        bool, Field(description="on the chain; from the next round on", examples=[False])
    ]
    passed: Annotated[
        list[PassedWithoutRequest], Field(description="views that passed without its request")
    ]
    awaited: list[AwaitedAct]
    late_since: Annotated[
        ChainSeconds | None,
        Field(description="null where nothing is late; being late proves nothing"),
    ]


class OpenRound(Response):
    """The open round."""

    round: RoundNumber
    stage: Annotated[
        str,
        one_of(stage.value for stage in RoundStage),
        Field(
            description="`committing`, `collecting` payloads and first scores, `aggregating` and "
            "`electing` (views of both votes), `deciding` (both are certified), `exhausted` (no "
            "view is left)"
        ),
    ]
    opened: BlockInTime
    window_block: Annotated[BlockNumber, Field(description="the last that takes commitments")]
    closing: Annotated[
        BlockInTime | None, Field(description="up to which commitments count; null before")
    ]
    deadline_block: Annotated[
        BlockNumber, Field(description="the first in which it may be abandoned")
    ]
    view: Annotated[
        CurrentView | None,
        Field(
            description="null where none goes on; those of the election begin when its service "
            "first saw the certificate of the aggregation"
        ),
    ]
    certified: CertifiedViews
    late: Annotated[list[Client], Field(description="the longest first")]
    clients: Annotated[list[ActiveClient], Field(description="the active ones, ascending")]


class PacedRound(Response):
    """One of the last rounds: its views, and how long it took."""

    round: RoundNumber
    status: Status
    views: Annotated[
        tuple[ViewNumber, ViewNumber] | None,
        Field(
            description="of the aggregation and the election; null unless decided",
            examples=[[0, 1]],
        ),
    ]
    opened: BlockInTime
    ended: EndBlock | None
    seconds: Annotated[
        Count | None, Field(description="from the opening block to the last; null while open")
    ]


class MailboxState(Response):
    """State of the mailbox."""

    read: Annotated[bool, Field(description="at the last look", examples=[True])]
    read_at: Annotated[ChainSeconds | None, Field(description="when it last could; null: never")]


class FederationAnswer(Answer):
    """A live federation, by signed evidence."""

    now: Annotated[ChainSeconds, Field(description="when it was looked at")]
    stage: StageName
    view_seconds: Annotated[
        Count, Field(description="how long view 0 lasts; each later one twice as long")
    ]
    mailbox: MailboxState
    open: Annotated[OpenRound | None, Field(description="null where no round is open")]
    rounds: Annotated[list[PacedRound], Field(description="the last 10, newest first")]
    links: Links
