"""Answers about deployments."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from api.schemas.words import (
    Answer,
    BlockNumber,
    Count,
    Digest32,
    Eip55,
    Links,
    RoundNumber,
    Schema,
    SelectionForm,
    one_of,
)
from ledger.protocol.rules import registry

RunName = Annotated[str, Field(max_length=64, examples=["first"])]
Millionths = Annotated[
    int, Field(ge=0, le=10**6, description="a share in millionths", examples=[500_000])
]


class Sizes(Schema):
    """How many take part in a round."""

    clients: Annotated[Count, Field(description="K, registered clients", examples=[12])]
    trainers: Annotated[Count, Field(description="n, training clients of a round", examples=[6])]
    members: Annotated[Count, Field(description="C, members of a committee", examples=[4])]
    accepted: Annotated[
        Count, Field(description="m, if all n are ranked; strategy III decides itself")
    ]
    replies: Annotated[
        Count, Field(description="equal replies from others than the primary that decide")
    ]


class DeploymentSummary(Schema):
    """One deployment in the list."""

    address: Eip55
    run: RunName
    config: Digest32
    rounds: Annotated[RoundNumber, Field(description="T, the last round", examples=[5])]
    sizes: Sizes
    links: Links


class DeploymentsAnswer(Answer):
    """All deployments, by run."""

    deployments: tuple[DeploymentSummary, ...]


class ContractParameters(Schema):
    """What the contract itself fixes, for ever."""

    aggregation_ppm: Millionths
    form: SelectionForm
    rounds: Annotated[RoundNumber, Field(examples=[5])]
    commit_blocks: Annotated[
        Count, Field(description="blocks after the opening one that take commitments")
    ]
    deadline_blocks: Annotated[
        Count,
        Field(description="after which an undecided round may be abandoned", examples=[16]),
    ]
    replies: Annotated[Count, Field(description="that decide, beside the primary's request")]
    beacon: Literal["none", "block"]
    registry: Digest32
    initial_model: Digest32


class SelectionStrategy(Schema):
    """Which trainers enter the model: a rule by number and name."""

    number: Annotated[int, one_of(registry.SELECTIONS)]
    name: Annotated[str, one_of(rule.name for rule in registry.SELECTIONS.values())]


class RunParameters(Schema):
    """What the run's configuration adds, from the blob that the contract names by digest."""

    active_ppm: Millionths
    committee_ppm: Millionths
    aggregation_ppm: Millionths
    dimension: Annotated[Count, Field(description="d, parameters of the model", examples=[650])]
    strategy: SelectionStrategy
    scoring: Annotated[str, one_of(registry.SCORINGS)]
    distance: Annotated[str, one_of(registry.DISTANCES)]
    reference: Annotated[str, one_of(registry.REFERENCES)]
    threshold: Annotated[str, one_of(registry.THRESHOLDS)]
    quorum: Literal["paper", "bft"]
    server_rate: Annotated[float, Field(gt=0, examples=[1.0])]
    scores_checked: Annotated[
        bool, Field(description="whether members leave false scores out", examples=[True])
    ]
    view_seconds: Annotated[
        Count, Field(description="how long view 0 lasts; each later one twice as long")
    ]


class ContractState(Schema):
    """The contract's storage at the block of `as_of`."""

    stage: Literal["open", "registering", "finished"]
    round: Annotated[int, Field(ge=0, description="0 before the first", examples=[2])]
    opened_block: BlockNumber
    seed: Digest32
    committee: Annotated[Digest32, Field(description="set digest of S_c")]
    model: Annotated[Digest32, Field(description="sha256 of w_t")]
    head: Annotated[Digest32, Field(description="commits to the whole history")]
    registered: Count
    commitments: Annotated[Digest32, Field(description="running digest of the open round's")]


class DeploymentAnswer(Answer):
    """One deployment: what is fixed, and where it stands."""

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
