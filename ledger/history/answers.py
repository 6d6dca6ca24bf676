"""Types of answers about chains, deployments, clients, digests, evidence and training."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field

from ledger.history.answers_rounds import Base, Duties, EndBlock, IncidentEntry, Placed
from ledger.history.fields import (
    Answer,
    BlockNumber,
    Client,
    CommitmentWord,
    Count,
    Digest32,
    DropoutWhy,
    Eip55,
    EnumLiteral,
    Links,
    NextCursor,
    Payload,
    Place,
    RefusalWhy,
    Response,
    Rfc3339,
    Role,
    RoundNumber,
    SelectionForm,
    Signature65,
    StageName,
    StatementWhat,
    Status,
    TrainerOutcome,
    Uint,
    UnixTime,
    name_of,
    one_of,
    rule_of,
)
from ledger.history.round import DigestKind
from ledger.protocol.parameters import STRATEGIES
from ledger.protocol.payloads import FLOAT32, PAYLOAD_FORMS
from ledger.protocol.rules.distance import DIRECTION, SQUARED
from ledger.protocol.types import Beacon, Quorum

RunName = Annotated[str, Field(max_length=64, examples=["first"])]
Millionths = Annotated[
    int, Field(ge=0, le=10**6, description="a share in millionths", examples=[500_000])
]


class Chain(Response):
    """A chain and its name in paths."""

    name: Annotated[str, Field(max_length=90, examples=["131277322940537-5c5c5c5c"])]
    chain_id: Annotated[Uint, Field(examples=["131277322940537"])]
    genesis: Annotated[Digest32, Field(description="hash of block 0")]
    links: Links


class ChainHead(Chain):
    """A chain and its newest block."""

    number: BlockNumber
    hash: Digest32
    time: UnixTime
    at: Rfc3339


class ChainsAnswer(Answer):
    """The chains of the service."""

    chains: list[Chain]


class Sizes(Response):
    """Numbers of participants of a round."""

    clients: Annotated[Count, Field(description="K, registered clients", examples=[12])]
    trainers: Annotated[Count, Field(description="n, training clients of a round", examples=[6])]
    members: Annotated[Count, Field(description="C, members of a committee", examples=[4])]
    accepted: Annotated[
        Count, Field(description="m, if all n are ranked; strategy III decides itself")
    ]
    replies: Annotated[
        Count, Field(description="equal replies from others than the primary that decide")
    ]


class DeploymentSummary(Response):
    """One deployment in the list."""

    address: Eip55
    run: RunName
    config: Digest32
    rounds: Annotated[RoundNumber, Field(description="T, the last round", examples=[5])]
    sizes: Sizes
    links: Links


class DeploymentList(Response):
    """All deployments, by run."""

    deployments: list[DeploymentSummary]


class DeploymentsAnswer(Answer, DeploymentList):
    """All deployments, by run."""


class ContractParameters(Response):
    """Parameters that the contract itself fixes."""

    aggregation_ppm: Millionths
    form: SelectionForm
    rounds: Annotated[RoundNumber, Field(examples=[5])]
    commit_blocks: Annotated[
        Count, Field(description="blocks after the opening one that take commitments")
    ]
    deadline_blocks: Annotated[
        Count, Field(description="after which an undecided round may be abandoned", examples=[16])
    ]
    replies: Annotated[Count, Field(description="that decide, beside the primary's request")]
    beacon: Annotated[Beacon, EnumLiteral("none", "block")]
    registry: Digest32
    initial_model: Digest32


class SelectionStrategy(Response):
    """The strategy, which determines every rule, by number and name."""

    number: Annotated[int, one_of(STRATEGIES)]
    name: Annotated[str, one_of(STRATEGIES.values())]


class RunParameters(Response):
    """Parameters of the run's configuration, from the blob that the contract names by digest."""

    active_ppm: Millionths
    committee_ppm: Millionths
    aggregation_ppm: Millionths
    dimension: Annotated[Count, Field(description="d, parameters of the model", examples=[650])]
    strategy: SelectionStrategy
    distance: Annotated[str, rule_of((SQUARED.name, DIRECTION.name))]
    quorum: Annotated[Quorum, EnumLiteral("paper", "bft")]
    server_rate: Annotated[float, Field(gt=0, examples=[1.0])]
    view_seconds: Annotated[
        Count, Field(description="how long view 0 lasts; each later one twice as long")
    ]
    payload: NotRequired[
        Annotated[
            str,
            one_of(name for name in PAYLOAD_FORMS if name != FLOAT32.name),
            Field(description="form of the updates' payloads; float32 if it is not given"),
        ]
    ]


class ContractState(Response):
    """The contract's storage at the block of `as_of`."""

    stage: StageName
    round: Annotated[int, Field(ge=0, description="0 before the first", examples=[2])]
    opened_block: BlockNumber
    seed: Digest32
    committee: Annotated[Digest32, Field(description="set digest of S_c")]
    model: Annotated[Digest32, Field(description="sha256 of w_t")]
    head: Annotated[Digest32, Field(description="commits to the whole history")]
    registered: Count
    commitments: Annotated[Digest32, Field(description="running digest of the open round's")]


class DeploymentDetails(Response):
    """One deployment: its fixed parameters and its current state."""

    address: Eip55
    run: RunName
    config: Annotated[Digest32, Field(description="sha256 of the run's configuration")]
    block: Annotated[BlockNumber, Field(description="that created the contract")]
    transaction: Digest32
    sizes: Sizes
    contract: ContractParameters
    parameters: Annotated[
        RunParameters | None, Field(description="null if the configuration's blob is not there")
    ]
    state: ContractState
    links: Links


class DeploymentAnswer(Answer, DeploymentDetails):
    """One deployment: its fixed parameters and its current state."""


class Statement(Response):
    """One of two signed statements that exclude each other."""

    kind: Literal["Request", "Reply", "Scores"]
    base: Base
    set: Annotated[Digest32, Field(description="set digest that the statement names")]
    result: Annotated[Digest32 | None, Field(description="of a vote; null for scores")]
    digest: Annotated[
        Digest32 | None, Field(description="sha256 of the score vector; null for a vote")
    ]
    signature: Signature65


class Ban(Response):
    """Two contradicting statements for one slot, which the contract has verified."""

    block: BlockNumber
    transaction: Digest32
    signed_twice: Annotated[
        StatementWhat | None, Field(description="null where the call data are not to be had")
    ]
    statements: Annotated[
        list[Statement] | None,
        Field(description="both; null where the call data are not to be had"),
    ]


class RefusedClaim(Response):
    """A signed score claim that does not count."""

    digest: Annotated[Digest32, Field(description="sha256 of the score vector's blob")]
    signature: Annotated[Signature65, Field(description="over EIP-712 `Scores`")]
    reason: RefusalWhy
    named: Annotated[
        Client | None, Field(description="the client whose distance is false, if that is why")
    ]


class EvidenceEntry(Response):
    """One piece of evidence against a client in a round."""

    round: RoundNumber
    client: Client
    kind: Literal["ban", "refused_scores", "incident"]
    ban: Ban | None
    scores: RefusedClaim | None
    incident: IncidentEntry | None


class EvidencePage(Response):
    """Evidence against clients in the rounds of a page."""

    evidence: list[EvidenceEntry]
    scanned: Annotated[Count, Field(description="rounds that this page examined")]
    next_cursor: NextCursor


class EvidenceAnswer(Answer, EvidencePage):
    """Evidence against clients in the rounds of a page."""


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


class DigestPlace(Response):
    """One place of a digest."""

    kind: Annotated[
        str,
        Field(description="what it is there"),
        one_of(map(name_of, DigestKind)),
    ]
    round: Annotated[
        RoundNumber | None, Field(description="null for what belongs to the deployment")
    ]
    client: Annotated[Client | None, Field(description="its client; null if it belongs to none")]
    links: Links


class DigestPage(Response):
    """A page of the places of a digest."""

    digest: Digest32
    items: Annotated[
        list[DigestPlace],
        Field(description="the deployment's first, then ascending by round; empty if nowhere"),
    ]
    next_cursor: NextCursor


class DigestAnswer(Answer, DigestPage):
    """A page of the places of a digest."""


ClaimsState = Literal["read", "absent", "unreadable"]
Share = Annotated[float, Field(ge=0, le=1, examples=[0.91])]


class Claimed(Response):
    """Claims of the run's own files, which no audit checks."""

    accuracy: Annotated[
        list[Share | None],
        Field(description="on the test set, after the round; null where it was not measured"),
    ]
    floor: Annotated[
        list[Share | None], Field(description="accuracy of always answering the commonest class")
    ]
    malicious_accepted: Annotated[
        list[Count | None], Field(description="accepted updates that attackers sent")
    ]


class Series(Response):
    """A run over its rounds, ascending."""

    round: list[RoundNumber]
    status: list[Status]
    ranked: list[Count | None]
    accepted: list[Count | None]
    views: Annotated[
        list[tuple[int, int] | None],
        Field(description="of the aggregation and the election, from 0", examples=[[[0, 1]]]),
    ]
    committee: Annotated[list[list[Client]], Field(description="S_c of each round, by places")]
    claims: Annotated[
        ClaimsState,
        Field(
            description="whether the run's own files were read; unreadable ones are damaged, "
            "larger than 32 MiB, or no files"
        ),
    ]
    claimed: Annotated[Claimed | None, Field(description="null unless they were read")]


class SeriesAnswer(Answer, Series):
    """A run over its rounds, ascending."""


CoverageVerdict = Literal["same", "other", "disputed", "none"]


class AttestationEntry(Response):
    """The verdict of an auditor who has repeated an update; it is the auditor's word alone."""

    auditor: Eip55
    verdict: Literal["same", "other"]
    environment: Annotated[
        str,
        Field(
            description="in which it was repeated",
            examples=["torch 2.13.0, plain, x86_64 avx2, cpu, 1 thread"],
        ),
    ]
    witness: Annotated[Digest32, Field(description="of the losses of all local steps, withheld")]


class AttestedUpdate(Response):
    """An update that the chain has, and the attestations about it."""

    round: RoundNumber
    client: Client
    verdict: Annotated[
        CoverageVerdict,
        Field(description="of all attestations; disputed where they differ, none without any"),
    ]
    attestations: Annotated[
        list[AttestationEntry],
        Field(description="genuine ones, by auditor; an auditor may have several"),
    ]


class VerdictCounts(Response):
    """Number of updates by verdict."""

    same: Count
    other: Count
    disputed: Count
    none: Count


class TrainingCoverage(Response):
    """Coverage of some ended rounds: which updates auditors have repeated."""

    first: Annotated[Count, Field(description="first round that is covered here")]
    last: Annotated[Count, Field(description="last one; below `first` where none has ended")]
    ended: Annotated[Count, Field(description="number of rounds that have ended")]
    next_from: Annotated[
        RoundNumber | None,
        Field(description="first round that was asked for and is not covered here; else null"),
    ]
    clients: Annotated[Count, Field(description="registered ones")]
    counts: VerdictCounts
    auditors: Annotated[list[Eip55], Field(description="who have attested anything here")]
    updates: Annotated[list[AttestedUpdate], Field(description="ascending by round and client")]


class TrainingAnswer(Answer, TrainingCoverage):
    """Coverage of some ended rounds: which updates auditors have repeated."""
