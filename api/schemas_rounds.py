"""Answers about rounds and their parts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from api.schemas import (
    Answer,
    Bits,
    BlockNumber,
    Client,
    Count,
    Digest32,
    Distance,
    Eip55,
    Links,
    NextCursor,
    RoundNumber,
    Schema,
    Signature65,
    Status,
    Uint,
    UnixTime,
)

View = Annotated[int, Field(ge=0, lt=2**32, description="v, from 0", examples=[0])]
Place = Annotated[int, Field(ge=0, description="on the committee, from 0", examples=[1])]
Reason = Annotated[str, Field(max_length=300, examples=["payload malformed"])]


class EndBlock(Schema):
    """Where the chain holds a round's decision or abandonment."""

    number: BlockNumber
    hash: Digest32
    transaction: Digest32


class RoundSummary(Schema):
    """One round in the list."""

    round: RoundNumber
    status: Status
    ranked: Count
    accepted: Count
    views: Annotated[
        tuple[int, int] | None,
        Field(description="of the aggregation and the election, from 0", examples=[[0, 1]]),
    ]
    model: Annotated[Digest32 | None, Field(description="w_{t+1}; null unless decided")]
    ended: EndBlock | None
    links: Links


class RoundsAnswer(Answer):
    """A page of rounds; with filters, one page looks at so many rounds at most."""

    rounds: tuple[RoundSummary, ...]
    scanned: Annotated[
        Count, Field(description="rounds that this page looked at; a page may be short of `limit`")
    ]
    next_cursor: NextCursor


class RecordPointer(Schema):
    """The blob with what the decision rests on beyond the chain; whoever decided names it."""

    digest: Digest32
    available: Annotated[
        bool, Field(description="whether it is there, and a record of this round", examples=[True])
    ]


class RoundPart(Answer):
    """What every answer about one round says."""

    round: RoundNumber
    status: Status


class RoundAnswer(RoundPart):
    """One round in numbers; its parts are linked."""

    seed: Digest32
    trainers: Annotated[Count, Field(description="sampled, S_b", examples=[6])]
    members: Annotated[Count, Field(description="S_c", examples=[4])]
    committed: Annotated[Count, Field(description="clients with a commitment", examples=[10])]
    ranked: Annotated[Count, Field(examples=[6])]
    accepted: Annotated[Count, Field(description="S_a", examples=[3])]
    banned: Annotated[tuple[Client, ...], Field(description="during the round", examples=[[]])]
    views: Annotated[
        tuple[int, int] | None,
        Field(description="of the aggregation and the election, from 0", examples=[[0, 1]]),
    ]
    model: Annotated[Digest32 | None, Field(description="w_{t+1}; null unless decided")]
    next_seed: Digest32 | None
    head: Annotated[Digest32 | None, Field(description="after the round")]
    ended: EndBlock | None
    ended_time: UnixTime | None
    record: RecordPointer | None
    links: Links


class UpdateEntry(Schema):
    """One sampled trainer and what became of its update."""

    client: Client
    outcome: Literal["accepted", "not accepted", "dropped out", "undecided"]
    payload: Annotated[Digest32 | None, Field(description="as committed; null without")]
    rank: Annotated[int | None, Field(description="from 0, best first", ge=0, examples=[0])]
    distance: Distance | None
    distance_bits: Bits | None
    reason: Annotated[
        Reason | None, Field(description="why it dropped out, if chain or record tell")
    ]


class UpdatesAnswer(RoundPart):
    """Every sampled trainer, ascending."""

    updates: tuple[UpdateEntry, ...]
    record: RecordPointer | None


class ScoredDistance(Schema):
    """One distance of a score vector."""

    client: Client
    distance: Distance
    distance_bits: Bits


class Vector(Schema):
    """A score vector, from its blob."""

    trainers: tuple[ScoredDistance, ...]
    members: tuple[ScoredDistance, ...]


class ScoreClaim(Schema):
    """A member's signed claim of its score vector."""

    member: Client
    digest: Annotated[Digest32, Field(description="sha256 of the score vector's blob")]
    signature: Annotated[Signature65, Field(description="over EIP-712 `Scores`")]
    counted: Annotated[bool, Field(examples=[True])]
    reason: Annotated[Reason | None, Field(description="why it was left out")]
    vector: Annotated[
        Vector | None,
        Field(description="only with `include=vectors`; null where blob or vector is no good"),
    ]


class ScoresAnswer(RoundPart):
    """The signed score claims, as the round's record lists them."""

    claims: tuple[ScoreClaim, ...]
    left_out: Annotated[
        Count, Field(description="claims of an oversized record not shown", examples=[0])
    ]
    scores_root: Annotated[Digest32 | None, Field(description="over the counted claims")]
    record: RecordPointer | None


class SignedPlace(Schema):
    """A member of the committee and its signature."""

    place: Place
    client: Client
    signature: Signature65


class Certificate(Schema):
    """One phase's proof, from the call data of `decide`: a request and a quorum of replies."""

    phase: Literal["aggregation", "election"]
    view: View
    timestamp: UnixTime
    set: Annotated[Digest32, Field(description="set digest of the clients voted on")]
    result: Annotated[Digest32, Field(description="as signed; zero for the election")]
    primary: Annotated[SignedPlace, Field(description="signed EIP-712 `Request`")]
    replies: Annotated[tuple[SignedPlace, ...], Field(description="signed EIP-712 `Reply`")]


class EvidenceVote(Schema):
    """A signed vote that proves an incident."""

    kind: Literal["Request", "Reply"]
    timestamp: UnixTime
    set: Digest32
    result: Digest32
    member: Client
    signature: Signature65


class IncidentEntry(Schema):
    """Something a member did wrong while voting, as the record tells."""

    phase: Literal["aggregation", "election"]
    view: View
    member: Client
    kind: Annotated[str, Field(max_length=300, examples=["wrong proposal"])]
    votes: tuple[EvidenceVote, ...]


class VotesAnswer(RoundPart):
    """Both certificates, and what went wrong on the way to them."""

    quorum: Annotated[Count, Field(examples=[3])]
    certificates: tuple[Certificate, ...]
    incidents: tuple[IncidentEntry, ...]
    left_out: Annotated[
        Count, Field(description="incidents of an oversized record not shown", examples=[0])
    ]
    record: RecordPointer | None


class MemberEntry(Schema):
    """A member by its place."""

    place: Place
    client: Client
    address: Eip55


class CommitteeMember(MemberEntry):
    """A member of the round's committee."""

    payload: Annotated[Digest32 | None, Field(description="of its own update; null without")]
    primary_of: Annotated[
        tuple[Literal["aggregation", "election"], ...],
        Field(description="phases that were decided with it as the primary"),
    ]


class CommitteeAnswer(RoundPart):
    """S_c of the round and of the next."""

    committee: tuple[CommitteeMember, ...]
    next_committee: tuple[MemberEntry, ...]


class Weight(Schema):
    """p_k = n_k / Σ n_k, exactly and as the float64 that is used."""

    numerator: Annotated[Uint, Field(examples=["119"])]
    denominator: Annotated[Uint, Field(examples=["357"])]
    value: Annotated[float, Field(ge=0, le=1, examples=[0.3333333333333333])]


class AcceptedUpdate(Schema):
    """One client of S_a."""

    client: Client
    rank: Annotated[int, Field(ge=0, examples=[0])]
    payload: Digest32 | None
    weight: Weight


class Threshold(Schema):
    """Strategy III's threshold."""

    value: Distance
    bits: Bits


class AggregationAnswer(RoundPart):
    """What was aggregated; all null and empty unless decided."""

    strategy: Literal[1, 2, 3]
    accepted: Annotated[tuple[AcceptedUpdate, ...], Field(description="S_a, in ranking order")]
    set: Annotated[Digest32 | None, Field(description="set digest of S_a")]
    threshold: Annotated[Threshold | None, Field(description="null for strategies I and II")]
    model: Annotated[Digest32 | None, Field(description="sha256 of w_{t+1}")]
    updates_root: Digest32 | None
    scores_root: Digest32 | None
    ranking_digest: Digest32 | None
    result: Annotated[Digest32 | None, Field(description="what the committee voted on")]
