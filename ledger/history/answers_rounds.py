"""Responses about rounds and their parts.

Where a response exists with and without `as_of`, the one without is what `--json` prints.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ledger.history.fields import (
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
    MemberScores,
    NextCursor,
    Payload,
    PhaseName,
    Place,
    RefusalWhy,
    Response,
    Rfc3339,
    RoundNumber,
    SelectionForm,
    Signature65,
    Status,
    TrainerOutcome,
    Uint,
    UnixTime,
    VoteName,
)

View = Annotated[int, Field(ge=0, lt=2**32, description="v, from 0", examples=[0])]
Base = Annotated[
    Digest32,
    Field(description="the commitments digest after the closing block: which inputs are meant"),
]


class EndBlock(Response):
    """The block with a round's decision or abandonment."""

    number: BlockNumber
    hash: Digest32
    transaction: Digest32
    time: UnixTime
    at: Rfc3339


class RoundSummary(Response):
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


class DiscardedRounds(Response):
    """An event's notice that rounds were taken back by a reorganisation of the chain."""

    from_round: RoundNumber


class RecordPointer(Response):
    """The blob with the basis of the decision; the result that was voted on binds it."""

    digest: Digest32
    available: Annotated[
        bool, Field(description="whether it is there, and a record of this round", examples=[True])
    ]


class IncidentsPointer(Response):
    """The blob with the failures while voting; only the decision's sender names it."""

    digest: Digest32
    available: Annotated[
        bool, Field(description="whether it is there, and of this round", examples=[True])
    ]


class RoundHeading(Response):
    """First fields of every response about one round."""

    round: RoundNumber
    status: Status


class RoundNumbers(Response):
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
        list[Client],
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


class Placed(Response):
    """Rank and distance of an update; null if it is not ranked."""

    rank: Annotated[int | None, Field(description="from 0, best first", ge=0, examples=[0])]
    distance: Distance | None
    distance_bits: Bits | None


class UpdateEntry(Placed):
    """One sampled trainer and the outcome of its update."""

    client: Client
    outcome: TrainerOutcome
    committed: Annotated[
        bool | None, Field(description="whether its commitment came in time", examples=[True])
    ]
    commitment: CommitmentWord
    payload: Payload
    reason: Annotated[
        DropoutWhy | None, Field(description="why it dropped out, if chain or record tell")
    ]


class RoundUpdates(RoundHeading):
    """Every sampled trainer, ascending."""

    updates: list[UpdateEntry]
    record: RecordPointer | None


class UpdatesAnswer(Answer, RoundUpdates):
    """Every sampled trainer, ascending."""


class ScoredDistance(Response):
    """One distance of a score vector, as its member published it."""

    client: Client
    distance: Annotated[
        float | None, Field(description="null if it is infinite or no number", examples=[0.5])
    ]
    distance_bits: Bits


class Vector(Response):
    """A score vector, from its blob; a refused one may hold any values."""

    round: Annotated[
        Uint, Field(description="as the vector says: any number of 64 bits", examples=["2"])
    ]
    member: Client
    base: Base
    trainers: list[ScoredDistance]
    members: list[ScoredDistance]


class ScoreClaim(Response):
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


class ScoresBody(Response):
    """The signed score claims, as the round's record lists them."""

    base: Annotated[Base | None, Field(description="that every claim names")]
    clients: Annotated[
        list[Client],
        Field(description="with a usable update, ascending: the set that every claim names"),
    ]
    clients_digest: Annotated[Digest32 | None, Field(description="set digest of `clients`")]
    claims: list[ScoreClaim]
    left_out: Annotated[
        Count, Field(description="claims of an oversized record not shown", examples=[0])
    ]
    scores_root: Annotated[Digest32 | None, Field(description="over the counted claims")]


class RoundScores(ScoresBody, RoundHeading):
    """The signed score claims of one round."""

    record: RecordPointer | None


class ScoresAnswer(ScoresBody, Answer, RoundHeading):
    """The signed score claims, as the round's record lists them."""

    record: RecordPointer | None


class SignedPlace(Response):
    """A member of the committee and its signature."""

    place: Place
    client: Client
    signature: Signature65


class Certificate(Response):
    """One phase's proof, from the call data of `decide`: a request and a quorum of replies."""

    phase: PhaseName
    view: View
    base: Base
    set: Annotated[Digest32, Field(description="set digest of the clients voted on")]
    result: Annotated[Digest32, Field(description="as signed; the same in both phases")]
    primary: Annotated[SignedPlace, Field(description="signed EIP-712 `Request`")]
    replies: Annotated[list[SignedPlace], Field(description="signed EIP-712 `Reply`")]


class EvidenceVote(Response):
    """A signed vote that proves an incident."""

    kind: VoteName
    base: Base
    set: Digest32
    result: Digest32
    signature: Signature65


class Opening(Response):
    """Preimage of an aggregation result, which is keccak256 of its abi.encode."""

    model: Digest32
    updates_root: Digest32
    scores_root: Digest32
    ranking_digest: Digest32
    reveal: Digest32
    record: Digest32


class IncidentEntry(Response):
    """A member's failure while voting, with its own signed votes as evidence."""

    phase: PhaseName
    view: View
    member: Client
    kind: IncidentWhat
    votes: list[EvidenceVote]
    opening: Annotated[
        Opening | None, Field(description="of a wrong proposal; null for other kinds")
    ]


class VotesBody(Response):
    """Both certificates, and the reported incidents before them."""

    replies_needed: Annotated[
        Count, Field(description="equal replies that decide, beside the request", examples=[3])
    ]
    certificates: Annotated[
        list[Certificate] | None,
        Field(
            description="null where the signatures are not in the contract's call data: an account "
            "with code of its own called it"
        ),
    ]
    incidents: list[IncidentEntry]
    left_out: Annotated[
        Count, Field(description="incidents of an oversized document not shown", examples=[0])
    ]
    incidents_document: Annotated[
        IncidentsPointer | None, Field(description="null if none are named")
    ]


class RoundVotes(VotesBody, RoundHeading):
    """Both certificates of one round, and its incidents."""


class VotesAnswer(VotesBody, Answer, RoundHeading):
    """Both certificates, and the reported incidents before them."""


class MemberEntry(Response):
    """A member by its seat index."""

    place: Place
    client: Client
    address: Eip55


class Refusal(Response):
    """Reason why a member's scores do not count."""

    reason: RefusalWhy
    named: Annotated[
        Client | None, Field(description="the client whose distance is false, if that is why")
    ]


class Accusation(Response):
    """A member's failure as the decision's sender reports it; no vote binds it."""

    phase: PhaseName
    view: View
    kind: IncidentWhat


class Duties(Response):
    """Scores, votes and incidents of a member; null or empty for a trainer."""

    scores: Annotated[
        MemberScores | None,
        Field(description="what became of its scores; unknown without the round's record"),
    ]
    refused: list[Refusal]
    voted: Annotated[
        list[PhaseName], Field(description="phases whose deciding certificate it signed")
    ]
    primary_of: Annotated[
        list[PhaseName], Field(description="phases that were decided with it as the primary")
    ]
    incidents: list[Accusation]


class CommitteeMember(Duties, MemberEntry):
    """A member of the round's committee."""

    empty_seat: Annotated[
        bool, Field(description="whether it was banned when the round opened", examples=[False])
    ]
    committed: Annotated[
        bool | None, Field(description="whether its commitment came in time", examples=[True])
    ]
    commitment: CommitmentWord
    payload: Payload
    reason: Annotated[
        DropoutWhy | None, Field(description="why it has no usable update, if that is told")
    ]


class RoundCommittee(RoundHeading):
    """S_c of the round and of the next."""

    committee: list[CommitteeMember]
    next_committee: list[MemberEntry]
    record: RecordPointer | None


class CommitteeAnswer(Answer, RoundCommittee):
    """S_c of the round and of the next."""


class Weight(Response):
    """The share of an update: n_k / Σ n_k, or 1 / m of the clipped one in strategy 3."""

    numerator: Annotated[Uint, Field(examples=["119"])]
    denominator: Annotated[Uint, Field(examples=["357"])]
    value: Annotated[float, Field(ge=0, le=1, examples=[0.3333333333333333])]


class AcceptedUpdate(Response):
    """One client of S_a."""

    client: Client
    rank: Annotated[int, Field(ge=0, examples=[0])]
    payload: Payload
    weight: Weight


class AggregationBody(Response):
    """The aggregation; all null and empty unless decided."""

    form: SelectionForm
    accepted: Annotated[list[AcceptedUpdate], Field(description="S_a, in ranking order")]
    set: Annotated[Digest32 | None, Field(description="set digest of S_a")]
    model: Annotated[Digest32 | None, Field(description="sha256 of w_{t+1}")]
    updates_root: Digest32 | None
    scores_root: Digest32 | None
    ranking_digest: Digest32 | None
    reveal: Digest32 | None
    result: Annotated[Digest32 | None, Field(description="what the committee voted on")]


class RoundAggregation(AggregationBody, RoundHeading):
    """The aggregation of one round."""

    record: RecordPointer | None


class AggregationAnswer(AggregationBody, Answer, RoundHeading):
    """The aggregation; all null and empty unless decided."""

    record: RecordPointer | None


class CommitmentEntry(Response):
    """A commitment that a round took."""

    client: Client
    commitment: Annotated[Digest32, Field(description="keccak256(client ‖ payload digest)")]
    block: Annotated[BlockNumber, Field(description="that holds it")]


class RoundParts(Response):
    """All parts of a round but the score vectors."""

    commitments: Annotated[
        list[CommitmentEntry],
        Field(
            description="in the chain's order, also of clients that are not active and after the "
            "closing block: the base follows from those up to that block, the head from all"
        ),
    ]
    updates: list[UpdateEntry]
    committee: list[CommitteeMember]
    next_committee: list[MemberEntry]
    aggregation: AggregationBody
    scores: ScoresBody
    votes: VotesBody


class FullRound(RoundNumbers):
    """One round whole."""

    parts: RoundParts


class FullRoundAnswer(RoundNumbers, Answer):
    """One round whole."""

    parts: RoundParts


class RoundDetails(RoundNumbers):
    """One round in numbers or whole."""

    parts: RoundParts | None


class RoundAnswer(RoundNumbers, Answer):
    """One round in numbers, and whole with `full=true`."""

    parts: Annotated[RoundParts | None, Field(description="null without `full=true`")]


class RoundExplanation(RoundHeading):
    """One round in plain words."""

    sentences: Annotated[
        list[str], Field(examples=[["Round 2 was decided, with 6 trainers and 4 members."]])
    ]


class ExplanationAnswer(Answer, RoundExplanation):
    """One round in plain words."""


class RoundsPage(Response):
    """A page of rounds."""

    rounds: list[RoundSummary] | list[FullRound]
    scanned: Annotated[
        Count, Field(description="rounds that this page examined; a page may be short of `limit`")
    ]
    next_cursor: NextCursor


class RoundsAnswer(Answer, RoundsPage):
    """A page of rounds; with filters, one page examines a limited number of rounds."""
