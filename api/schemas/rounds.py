"""Answers about rounds and their parts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from api.schemas.words import (
    Answer,
    Bits,
    BlockNumber,
    Client,
    CommitmentWord,
    Count,
    Digest32,
    Distance,
    DropoutWhy,
    Eip55,
    IncidentWhat,
    Links,
    NextCursor,
    Payload,
    Phase,
    Place,
    RefusalWhy,
    Rfc3339,
    RoundNumber,
    Schema,
    SelectionForm,
    Signature65,
    Status,
    Uint,
    UnixTime,
    UpdateOutcome,
)

View = Annotated[int, Field(ge=0, lt=2**32, description="v, from 0", examples=[0])]
Base = Annotated[
    Digest32,
    Field(description="the commitments digest after the closing block: which inputs are meant"),
]


class EndBlock(Schema):
    """Where the chain holds a round's decision or abandonment."""

    number: BlockNumber
    hash: Digest32
    transaction: Digest32
    time: UnixTime
    at: Rfc3339


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


class RecordPointer(Schema):
    """The blob with what the decision rests on; the result that was voted on binds it."""

    digest: Digest32
    available: Annotated[
        bool, Field(description="whether it is there, and a record of this round", examples=[True])
    ]


class IncidentsPointer(Schema):
    """The blob with what went wrong while voting; only the decision's sender names it."""

    digest: Digest32
    available: Annotated[
        bool, Field(description="whether it is there, and of this round", examples=[True])
    ]


class RoundPart(Answer):
    """What every answer about one round says."""

    round: RoundNumber
    status: Status


class RoundNumbers(Schema):
    """One round in numbers; its parts are linked."""

    round: RoundNumber
    status: Status
    opened_block: Annotated[BlockNumber, Field(description="that opened it")]
    seed: Digest32
    trainers: Annotated[Count, Field(description="sampled, S_b", examples=[6])]
    members: Annotated[Count, Field(description="S_c", examples=[4])]
    committed: Annotated[
        Count,
        Field(description="active clients with a commitment by the closing block", examples=[10]),
    ]
    ranked: Annotated[Count, Field(examples=[6])]
    accepted: Annotated[Count, Field(description="S_a", examples=[3])]
    banned: Annotated[
        tuple[Client, ...],
        Field(description="in the round's course, with effect from the next on", examples=[[]]),
    ]
    base: Annotated[Base | None, Field(description="that both certificates name")]
    reveal: Annotated[
        Digest32 | None, Field(description="keccak256 of the ranked trainers' payload digests")
    ]
    views: Annotated[
        tuple[int, int] | None,
        Field(description="of the aggregation and the election, from 0", examples=[[0, 1]]),
    ]
    model: Annotated[Digest32 | None, Field(description="w_{t+1}; null unless decided")]
    next_seed: Digest32 | None
    head: Annotated[Digest32 | None, Field(description="after the round")]
    ended: EndBlock | None
    record: RecordPointer | None
    incidents: Annotated[IncidentsPointer | None, Field(description="null if none are named")]
    links: Links


class Placed(Schema):
    """Where the ranking has an update; all null if it has not."""

    rank: Annotated[int | None, Field(description="from 0, best first", ge=0, examples=[0])]
    distance: Distance | None
    distance_bits: Bits | None


class UpdateEntry(Placed):
    """One sampled trainer and what became of its update."""

    client: Client
    outcome: UpdateOutcome
    committed: Annotated[
        bool | None, Field(description="whether its commitment came in time", examples=[True])
    ]
    commitment: CommitmentWord
    payload: Payload
    reason: Annotated[
        DropoutWhy | None, Field(description="why it dropped out, if chain or record tell")
    ]


class UpdatesAnswer(RoundPart):
    """Every sampled trainer, ascending."""

    updates: tuple[UpdateEntry, ...]
    record: RecordPointer | None


class ScoredDistance(Schema):
    """One distance of a score vector, as its member published it."""

    client: Client
    distance: Annotated[
        float | None, Field(description="null if it is infinite or no number", examples=[0.5])
    ]
    distance_bits: Bits


class Vector(Schema):
    """A score vector, from its blob; one that is refused may be of anything."""

    round: Annotated[
        Uint, Field(description="as the vector says: any number of 64 bits", examples=["2"])
    ]
    member: Client
    base: Base
    trainers: tuple[ScoredDistance, ...]
    members: tuple[ScoredDistance, ...]


class ScoreClaim(Schema):
    """A member's signed claim of its score vector."""

    member: Client
    digest: Annotated[Digest32, Field(description="sha256 of the score vector's blob")]
    signature: Annotated[Signature65, Field(description="over EIP-712 `Scores`")]
    counted: Annotated[bool, Field(examples=[True])]
    reason: Annotated[RefusalWhy | None, Field(description="why it was left out")]
    named: Annotated[
        Client | None, Field(description="the client whose distance is false, if that is why")
    ]
    vector: Annotated[
        Vector | None,
        Field(description="only with `include=vectors`; null where blob or vector is no good"),
    ]


class ScoresBody(Schema):
    """The signed score claims, as the round's record lists them."""

    base: Annotated[Base | None, Field(description="that every claim names")]
    clients: Annotated[
        tuple[Client, ...],
        Field(description="with a usable update, ascending: the set that every claim names"),
    ]
    clients_digest: Annotated[Digest32 | None, Field(description="set digest of `clients`")]
    claims: tuple[ScoreClaim, ...]
    left_out: Annotated[
        Count, Field(description="claims of an oversized record not shown", examples=[0])
    ]
    scores_root: Annotated[Digest32 | None, Field(description="over the counted claims")]


class ScoresAnswer(RoundPart, ScoresBody):
    """The signed score claims, as the round's record lists them."""

    record: RecordPointer | None


class SignedPlace(Schema):
    """A member of the committee and its signature."""

    place: Place
    client: Client
    signature: Signature65


class Certificate(Schema):
    """One phase's proof, from the call data of `decide`: a request and a quorum of replies."""

    phase: Phase
    view: View
    base: Base
    set: Annotated[Digest32, Field(description="set digest of the clients voted on")]
    result: Annotated[Digest32, Field(description="as signed; the same in both phases")]
    primary: Annotated[SignedPlace, Field(description="signed EIP-712 `Request`")]
    replies: Annotated[tuple[SignedPlace, ...], Field(description="signed EIP-712 `Reply`")]


class EvidenceVote(Schema):
    """A signed vote that proves an incident."""

    kind: Literal["Request", "Reply"]
    base: Base
    set: Digest32
    result: Digest32
    signature: Signature65


class Opening(Schema):
    """What an aggregation result binds: keccak256 of its abi.encode is the result."""

    model: Digest32
    updates_root: Digest32
    scores_root: Digest32
    ranking_digest: Digest32
    threshold_bits: Bits
    reveal: Digest32
    record: Digest32


class IncidentEntry(Schema):
    """Something a member did wrong while voting, with its own signed votes as evidence."""

    phase: Phase
    view: View
    member: Client
    kind: IncidentWhat
    votes: tuple[EvidenceVote, ...]
    opening: Annotated[
        Opening | None, Field(description="of a wrong proposal; null for other kinds")
    ]


class VotesBody(Schema):
    """Both certificates, and what is said to have gone wrong on the way to them."""

    replies_needed: Annotated[
        Count, Field(description="equal replies that decide, beside the request", examples=[3])
    ]
    certificates: Annotated[
        tuple[Certificate, ...] | None,
        Field(
            description="null where the signatures are not in the contract's call data: an account "
            "with code of its own called it"
        ),
    ]
    incidents: tuple[IncidentEntry, ...]
    left_out: Annotated[
        Count, Field(description="incidents of an oversized document not shown", examples=[0])
    ]
    incidents_document: Annotated[
        IncidentsPointer | None, Field(description="null if none are named")
    ]


class VotesAnswer(RoundPart, VotesBody):
    """Both certificates, and what is said to have gone wrong on the way to them."""


class MemberEntry(Schema):
    """A member by its place."""

    place: Place
    client: Client
    address: Eip55


class Refusal(Schema):
    """Why a member's scores do not count."""

    reason: RefusalWhy
    named: Annotated[
        Client | None, Field(description="the client whose distance is false, if that is why")
    ]


class Accusation(Schema):
    """What the decision's sender says that a member did wrong while voting; bound by no vote."""

    phase: Phase
    view: View
    kind: IncidentWhat


class Duties(Schema):
    """What a member did; all null or empty for a trainer."""

    scores: Annotated[
        Literal["counted", "refused", "none", "unknown"] | None,
        Field(description="what became of its scores; unknown without the round's record"),
    ]
    refused: tuple[Refusal, ...]
    voted: Annotated[
        tuple[Phase, ...], Field(description="phases whose deciding certificate it signed")
    ]
    primary_of: Annotated[
        tuple[Phase, ...],
        Field(description="phases that were decided with it as the primary"),
    ]
    incidents: tuple[Accusation, ...]


class CommitteeMember(MemberEntry, Duties):
    """A member of the round's committee."""

    empty_seat: Annotated[
        bool,
        Field(description="whether it was banned when the round opened", examples=[False]),
    ]
    committed: Annotated[
        bool | None, Field(description="whether its commitment came in time", examples=[True])
    ]
    commitment: CommitmentWord
    payload: Payload
    reason: Annotated[
        DropoutWhy | None, Field(description="why it has no usable update, if that is told")
    ]


class CommitteeAnswer(RoundPart):
    """S_c of the round and of the next."""

    committee: tuple[CommitteeMember, ...]
    next_committee: tuple[MemberEntry, ...]
    record: RecordPointer | None


class Weight(Schema):
    """p_k = n_k / Σ n_k, exactly and as the float64 that is used."""

    numerator: Annotated[Uint, Field(examples=["119"])]
    denominator: Annotated[Uint, Field(examples=["357"])]
    value: Annotated[float, Field(ge=0, le=1, examples=[0.3333333333333333])]


class AcceptedUpdate(Schema):
    """One client of S_a."""

    client: Client
    rank: Annotated[int, Field(ge=0, examples=[0])]
    payload: Payload
    weight: Weight


class Threshold(Schema):
    """The largest distance that is accepted, where the committee certifies one."""

    value: Distance | None
    bits: Bits


class AggregationBody(Schema):
    """What was aggregated; all null and empty unless decided."""

    form: SelectionForm
    accepted: Annotated[tuple[AcceptedUpdate, ...], Field(description="S_a, in ranking order")]
    set: Annotated[Digest32 | None, Field(description="set digest of S_a")]
    threshold: Annotated[
        Threshold | None, Field(description="that the committee certified; null where it does not")
    ]
    model: Annotated[Digest32 | None, Field(description="sha256 of w_{t+1}")]
    updates_root: Digest32 | None
    scores_root: Digest32 | None
    ranking_digest: Digest32 | None
    reveal: Digest32 | None
    result: Annotated[Digest32 | None, Field(description="what the committee voted on")]


class AggregationAnswer(RoundPart, AggregationBody):
    """What was aggregated; all null and empty unless decided."""

    record: RecordPointer | None


class CommitmentEntry(Schema):
    """A commitment that a round took."""

    client: Client
    commitment: Annotated[Digest32, Field(description="keccak256(client ‖ payload digest)")]
    block: Annotated[BlockNumber, Field(description="that holds it")]


class RoundParts(Schema):
    """All parts of a round but the score vectors."""

    commitments: Annotated[
        tuple[CommitmentEntry, ...],
        Field(
            description="in the chain's order, also of clients that are not active and after the "
            "closing block: the base follows from those up to that block, the head from all"
        ),
    ]
    updates: tuple[UpdateEntry, ...]
    committee: tuple[CommitteeMember, ...]
    next_committee: tuple[MemberEntry, ...]
    aggregation: AggregationBody
    scores: ScoresBody
    votes: VotesBody


class FullRound(RoundNumbers):
    """One round whole."""

    parts: RoundParts


class RoundAnswer(Answer, RoundNumbers):
    """One round in numbers, and whole with `full=true`."""

    parts: Annotated[RoundParts | None, Field(description="null without `full=true`")]


class ExplanationAnswer(RoundPart):
    """One round in plain words."""

    sentences: Annotated[
        tuple[str, ...],
        Field(examples=[["Round 2 was decided, with 6 trainers and 4 members."]]),
    ]


class RoundsAnswer(Answer):
    """A page of rounds; with filters, one page looks at so many rounds at most."""

    rounds: tuple[RoundSummary, ...] | tuple[FullRound, ...]
    scanned: Annotated[
        Count, Field(description="rounds that this page looked at; a page may be short of `limit`")
    ]
    next_cursor: NextCursor
