"""Answers that only the service gives: problems, chains, deployments, a live federation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field

from ledger.actors.status import (
    ActionKind,
    ClientRoundStatus,
    OpenRoundStatus,
    ParticipantRole,
    RoundStage,
)
from ledger.history.answers_rounds import EndBlock, end_block
from ledger.history.fields import (
    Answer,
    AsOf,
    BlockNumber,
    Client,
    Count,
    Digest32,
    Eip55,
    EnumLiteral,
    Links,
    PhaseName,
    Place,
    Response,
    Rfc3339,
    RoundNumber,
    SelectionForm,
    StageName,
    Status,
    Uint,
    UnixTime,
    one_of,
    phase_name,
    rule_of,
    time_of,
    to_hex_or_none,
)
from ledger.protocol.consensus import MAX_VIEWS
from ledger.protocol.encoding import to_hex
from ledger.protocol.parameters import STRATEGIES
from ledger.protocol.payloads import FLOAT32, PAYLOAD_FORMS
from ledger.protocol.rules.distance import DIRECTION, SQUARED
from ledger.protocol.types import Beacon, Quorum, VoteKind

if TYPE_CHECKING:
    from ledger.history.history import FoldedHistory
    from ledger.history.round import HistoryRound

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
    errors: Annotated[tuple[FieldError, ...] | None, Field(description="of an invalid request")] = (
        None
    )


class Health(Schema):
    """The process is up; says nothing of the chain."""

    status: Literal["up"] = "up"


class Ready(Schema):
    """The chain can be read."""

    as_of: AsOf
    status: Literal["ready"] = "ready"


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


class DeploymentsAnswer(Answer):
    """All deployments, by run."""

    deployments: list[DeploymentSummary]


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


class DeploymentAnswer(Answer):
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


class DeploymentStatus(Response):
    """Stage and round of one deployment."""

    address: Eip55
    run: RunName
    stage: StageName
    round: Annotated[int, Field(ge=0, description="0 before the first", examples=[2])]
    rounds: RoundNumber
    links: Links


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
    compiler: Annotated[str, Field(description="of the contract", examples=["vyper 0.4.3"])]


class StatusAnswer(Answer):
    """Chain, deployments, refused manifests and versions."""

    chain: ChainHead
    deployments: list[DeploymentStatus]
    refused: list[RefusedManifest]
    versions: Versions


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


def open_round(history: FoldedHistory, status: OpenRoundStatus) -> OpenRound:
    """Return the status of the open round."""
    aggregation, election = status.certified
    closing = status.closing_block
    return {
        "round": status.round,
        "stage": status.stage.value,
        "opened": _block(history, status.opened_block),
        "window_block": status.window_block,
        "closing": None if closing is None else _block(history, closing),
        "deadline_block": status.deadline_block,
        "view": _view(status),
        "certified": {"aggregation": aggregation, "election": election},
        "late": [client.client for client in status.late],
        "clients": [_client(client) for client in status.clients],
    }


def paced_round(history: FoldedHistory, round_: HistoryRound) -> PacedRound:
    """Return a round's line: its views, and how long it took."""
    opened, ended = _block(history, round_.opening.opened_block), end_block(history, round_)
    return {
        "round": round_.round,
        "status": round_.status,
        "views": round_.decided.views if round_.decided else None,
        "opened": opened,
        "ended": ended,
        "seconds": None if ended is None else max(0, ended["time"] - opened["time"]),
    }


def _block(history: FoldedHistory, number: int) -> BlockInTime:
    return {"number": number, **time_of(history.time_of(number))}


def _view(status: OpenRoundStatus) -> CurrentView | None:
    if status.phase is None or status.span is None or status.primary is None:
        return None
    return {
        "phase": phase_name(status.phase),
        "number": status.span.view,
        "primary": status.primary,
        "begins": round(status.span.begin, 3),
        "ends": round(status.span.end, 3),
    }


def _client(client: ClientRoundStatus) -> ActiveClient:
    return {
        "client": client.client,
        "role": client.role.value,
        "place": client.place,
        "committed_block": client.committed_block,
        "counts": client.counts,
        "payload": to_hex_or_none(client.announced),
        "scored": [{"clients": to_hex(each.clients), "size": each.size} for each in client.scored],
        "votes": [
            {
                "kind": "request" if vote.kind is VoteKind.REQUEST else "reply",
                "phase": phase_name(vote.phase),
                "view": vote.view,
                "different": vote.different,
            }
            for vote in client.votes
        ],
        "equivocated": client.has_equivocated,
        "banned": client.is_banned,
        "passed": [{"phase": phase_name(each.phase), "view": each.view} for each in client.passed],
        "awaited": [{"act": each.act.value, "due": each.due} for each in client.awaited],
        "late_since": client.late_since,
    }
