"""Responses about chains and deployments."""

from __future__ import annotations

from typing import Annotated, NotRequired

from pydantic import Field

from ledger.history.responses.fields import (
    Answer,
    BlockNumber,
    Count,
    Digest32,
    Eip55,
    EnumLiteral,
    Links,
    Response,
    Rfc3339,
    RoundNumber,
    SelectionForm,
    StageName,
    Uint,
    UnixTime,
    one_of,
    rule_of,
)
from ledger.protocol.parameters import STRATEGIES
from ledger.protocol.payload_forms import FLOAT32, PAYLOAD_FORMS
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
