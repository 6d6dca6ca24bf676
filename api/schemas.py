"""Answers that only the service gives: problems, chains, deployments, a live federation."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, get_args

from pydantic import BaseModel, ConfigDict, Field

from ledger.history import fields
from ledger.history.fields import Answer, Response, doc, one_of, rule_of
from ledger.protocol.parameters import MAX_VIEWS, STRATEGIES
from ledger.protocol.payloads import FLOAT32, PAYLOAD_FORMS
from ledger.protocol.rules.distance import DIRECTION, SQUARED
from ledger.protocol.types import Beacon, Quorum

MEDIA_TYPE = "application/problem+json"
MAX_SHOWN = 300
MAX_ERRORS = 20


class Schema(BaseModel):
    """No unknown fields, no NaN, no infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class FieldError(Schema):
    """One value of the request that was refused."""

    place: Annotated[str, Field(max_length=20, examples=["query"])]
    name: Annotated[str, Field(max_length=100, examples=["limit"])]
    detail: Annotated[
        str, Field(max_length=MAX_SHOWN, examples=["Input should be less than or equal to 100"])
    ]


class Problem(Schema):
    """An error (RFC 9457)."""

    type: Annotated[str, Field(examples=["urn:cmfl:problem:request-invalid"])]
    title: Annotated[str, Field(examples=["The request is not valid"])]
    status: Annotated[int, Field(ge=400, le=599, examples=[422])]
    detail: Annotated[str, Field(examples=["query limit: Input should be at most 100"])]
    instance: Annotated[str, Field(examples=["/v1/chains"])]
    errors: Annotated[tuple[FieldError, ...] | None, doc("of an invalid request")] = None


class Health(Schema):
    """The process is up; says nothing of the chain."""

    status: Literal["up"] = "up"


class Ready(Schema):
    """The chain can be read."""

    as_of: fields.AsOf
    status: Literal["ready"] = "ready"


RunName = Annotated[str, Field(max_length=64, examples=["first"])]
Millionths = Annotated[int, doc("a share in millionths", ge=0, le=10**6, examples=[500_000])]


class Chain(Response):
    """A chain and its name in paths."""

    name: Annotated[str, Field(max_length=90, examples=["131277322940537-5c5c5c5c"])]
    chain_id: Annotated[fields.Uint, Field(examples=["131277322940537"])]
    genesis: Annotated[fields.Digest32, doc("hash of block 0")]
    links: fields.Links


class ChainHead(Chain):
    """A chain and its newest block."""

    number: fields.BlockNumber
    hash: fields.Digest32
    time: fields.UnixTime
    at: fields.Rfc3339


class ChainsAnswer(Answer):
    """The chains of the service."""

    chains: list[Chain]


class Sizes(Response):
    """Numbers of participants of a round."""

    clients: Annotated[fields.Count, doc("K, registered clients", examples=[12])]
    trainers: Annotated[fields.Count, doc("n, training clients of a round", examples=[6])]
    members: Annotated[fields.Count, doc("C, members of a committee", examples=[4])]
    accepted: Annotated[fields.Count, doc("m, if all n are ranked; strategy III decides itself")]
    replies: Annotated[fields.Count, doc("equal replies from others than the primary that decide")]


class DeploymentSummary(Response):
    """One deployment in the list."""

    address: fields.Eip55
    run: RunName
    config: fields.Digest32
    rounds: Annotated[fields.RoundNumber, doc("T, the last round", examples=[5])]
    sizes: Sizes
    links: fields.Links


class DeploymentsAnswer(Answer):
    """All deployments, by run."""

    deployments: list[DeploymentSummary]


class ContractParameters(Response):
    """Parameters that the contract itself fixes."""

    aggregation_ppm: Millionths
    form: fields.SelectionForm
    rounds: Annotated[fields.RoundNumber, Field(examples=[5])]
    commit_blocks: Annotated[
        fields.Count, doc("blocks after the opening one that take commitments")
    ]
    deadline_blocks: Annotated[
        fields.Count, doc("after which an undecided round may be abandoned", examples=[16])
    ]
    replies: Annotated[fields.Count, doc("that decide, in addition to the primary's request")]
    beacon: Annotated[Beacon, fields.EnumLiteral("none", "block")]
    registry: fields.Digest32
    initial_model: fields.Digest32


class SelectionStrategy(Response):
    """The strategy, which determines every rule, by number and name."""

    number: Annotated[int, one_of(STRATEGIES)]
    name: Annotated[str, one_of(STRATEGIES.values())]


class RunParameters(Response):
    """Parameters of the run's configuration, from the blob that the contract names by digest."""

    active_ppm: Millionths
    committee_ppm: Millionths
    aggregation_ppm: Millionths
    dimension: Annotated[fields.Count, doc("d, parameters of the model", examples=[650])]
    strategy: SelectionStrategy
    distance: Annotated[str, rule_of((SQUARED.name, DIRECTION.name))]
    quorum: Annotated[Quorum, fields.EnumLiteral("paper", "bft")]
    server_rate: Annotated[float, Field(gt=0, examples=[1.0])]
    view_seconds: Annotated[
        fields.Count, doc("how long view 0 lasts; each later one twice as long")
    ]
    payload: NotRequired[
        Annotated[
            str,
            one_of(name for name in PAYLOAD_FORMS if name != FLOAT32.name),
            doc("form of the updates' payloads; float32 if it is not given"),
        ]
    ]


class ContractState(Response):
    """The contract's storage at the block of `as_of`."""

    stage: fields.StageName
    round: Annotated[int, doc("0 before the first", ge=0, examples=[2])]
    opened_block: fields.BlockNumber
    seed: fields.Digest32
    committee: Annotated[fields.Digest32, doc("set digest of S_c")]
    model: Annotated[fields.Digest32, doc("sha256 of w_t")]
    head: Annotated[fields.Digest32, doc("commits to the whole history")]
    registered: fields.Count
    commitments: Annotated[fields.Digest32, doc("running digest of the open round's")]


class DeploymentAnswer(Answer):
    """One deployment: its fixed parameters and its current state."""

    address: fields.Eip55
    run: RunName
    config: Annotated[fields.Digest32, doc("sha256 of the run's configuration")]
    block: Annotated[fields.BlockNumber, doc("that created the contract")]
    transaction: fields.Digest32
    sizes: Sizes
    contract: ContractParameters
    parameters: Annotated[
        RunParameters | None, doc("null if the configuration's blob is not there")
    ]
    state: ContractState
    links: fields.Links


class DeploymentStatus(Response):
    """Stage and round of one deployment."""

    address: fields.Eip55
    run: RunName
    stage: fields.StageName
    round: Annotated[int, doc("0 before the first", ge=0, examples=[2])]
    rounds: fields.RoundNumber
    links: fields.Links


class RefusedManifest(Response):
    """A manifest that is not served, with the reason."""

    manifest: Annotated[str, Field(max_length=400, examples=["runs/second/deployment.json"])]
    reason: Annotated[
        str, Field(max_length=500, examples=["the manifest is for chain 5, not 131277322940537"])
    ]


class Versions(Response):
    """Versions of the running software."""

    package: Annotated[str, Field(examples=["0.1.0"])]
    protocol: Annotated[int, Field(ge=1, examples=[1])]
    compiler: Annotated[str, doc("of the contract", examples=["vyper 0.4.3"])]


class StatusAnswer(Answer):
    """Chain, deployments, refused manifests and versions."""

    chain: ChainHead
    deployments: list[DeploymentStatus]
    refused: list[RefusedManifest]
    versions: Versions


ChainSeconds = Annotated[float, doc("Unix seconds of the chain", ge=0, examples=[1_767_225_612.5])]
RoundStage = Literal["committing", "collecting", "aggregating", "electing", "deciding", "exhausted"]
ViewNumber = Annotated[int, doc("v, from 0", ge=0, lt=MAX_VIEWS, examples=[1])]


class BlockInTime(Response):
    """A block and its time."""

    number: fields.BlockNumber
    time: fields.UnixTime
    at: fields.Rfc3339


class CurrentView(Response):
    """The current view."""

    phase: fields.PhaseName
    number: ViewNumber
    primary: fields.Client
    begins: ChainSeconds
    ends: ChainSeconds


class CertifiedViews(Response):
    """The view in which each vote was certified."""

    aggregation: Annotated[ViewNumber | None, doc("null before", examples=[0])]
    election: Annotated[ViewNumber | None, doc("null before", examples=[1])]


class ScoredUpdates(Response):
    """A set of updates for which a member has signed a score vector."""

    clients: Annotated[fields.Digest32, doc("set digest")]
    size: Annotated[
        fields.Count | None, doc("clients in it; null where the vector is not one of it")
    ]


class SignedSlot(Response):
    """A slot in which a member has signed a vote."""

    kind: Literal["request", "reply"]
    phase: fields.PhaseName
    view: ViewNumber
    different: Annotated[
        int, doc("different votes in it; 2 is equivocation", ge=1, le=2, examples=[1])
    ]


class PassedWithoutRequest(Response):
    """A view that passed without its primary's request."""

    phase: fields.PhaseName
    view: ViewNumber


class AwaitedAct(Response):
    """An action that is expected from a client."""

    act: Annotated[str, one_of(("commitment", "payload", "scores", "request", "reply", "decision"))]
    due: Annotated[ChainSeconds | None, doc("late from then on; null while a block decides")]


class ActiveClient(Response):
    """An active client, by evidence in chain and mailbox; nothing is its own claim alone."""

    client: fields.Client
    role: Annotated[
        str,
        one_of(("trainer", "member", "empty_seat")),
        doc("`empty_seat`: a member that was banned when the round opened"),
    ]
    place: Annotated[fields.Place | None, doc("null for a trainer")]
    committed_block: Annotated[fields.BlockNumber | None, doc("null without commitment")]
    counts: Annotated[
        bool | None, doc("whether it came by the closing block; null before", examples=[True])
    ]
    payload: Annotated[
        fields.Digest32 | None, doc("that opens its commitment and is announced; not fetched here")
    ]
    scored: Annotated[list[ScoredUpdates], doc("the largest set first")]
    votes: Annotated[list[SignedSlot], doc("by phase and view")]
    equivocated: Annotated[
        bool, doc("two signed statements contradict each other", examples=[False])
    ]
    banned: Annotated[bool, doc("on the chain; from the next round on", examples=[False])]
    passed: Annotated[list[PassedWithoutRequest], doc("views that passed without its request")]
    awaited: list[AwaitedAct]
    late_since: Annotated[
        ChainSeconds | None, doc("null where nothing is late; being late proves nothing")
    ]


class OpenRound(Response):
    """The open round."""

    round: fields.RoundNumber
    stage: Annotated[
        str,
        one_of(get_args(RoundStage)),
        doc(
            "`committing`, `collecting` payloads and first scores, `aggregating` and "
            "`electing` (views of both votes), `deciding` (both are certified), `exhausted` "
            "(all views failed)"
        ),
    ]
    opened: BlockInTime
    window_block: Annotated[fields.BlockNumber, doc("the last that takes commitments")]
    closing: Annotated[
        BlockInTime | None, doc("last block for commitments that count; null before")
    ]
    deadline_block: Annotated[fields.BlockNumber, doc("first block for its abandonment")]
    view: Annotated[
        CurrentView | None,
        doc(
            "null if none is running; election views begin when the service first saw the "
            "aggregation certificate"
        ),
    ]
    certified: CertifiedViews
    late: Annotated[list[fields.Client], doc("the longest first")]
    clients: Annotated[list[ActiveClient], doc("the active ones, ascending")]


class PacedRound(Response):
    """One of the last rounds: its views, and how long it took."""

    round: fields.RoundNumber
    status: fields.Status
    views: Annotated[
        tuple[ViewNumber, ViewNumber] | None,
        doc("of the aggregation and the election; null unless decided", examples=[[0, 1]]),
    ]
    opened: BlockInTime
    ended: fields.EndBlock | None
    seconds: Annotated[
        fields.Count | None, doc("from the opening block to the last; null while open")
    ]


class MailboxState(Response):
    """State of the mailbox."""

    read: Annotated[bool, doc("at the last look", examples=[True])]
    read_at: Annotated[ChainSeconds | None, doc("when it last could; null: never")]


class FederationAnswer(Answer):
    """A live federation, by signed evidence."""

    now: Annotated[ChainSeconds, doc("when it was looked at")]
    stage: fields.StageName
    view_seconds: Annotated[
        fields.Count, doc("how long view 0 lasts; each later one twice as long")
    ]
    mailbox: MailboxState
    open: Annotated[OpenRound | None, doc("null where no round is open")]
    rounds: Annotated[list[PacedRound], doc("the last 10, newest first")]
    links: fields.Links
