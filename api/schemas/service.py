"""Answers about the service itself: is it up, what does it read, what does it serve."""

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
    Rfc3339,
    RoundNumber,
    Schema,
    Uint,
    UnixTime,
    name_of,
    one_of,
)
from ledger.index.codes import StorageComparison


class Health(Schema):
    """The process is up; says nothing of the chain."""

    status: Literal["up"] = "up"


class Ready(Answer):
    """The chain can be read."""

    status: Literal["ready"] = "ready"


class Chain(Schema):
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
    """The chains that are served."""

    chains: tuple[Chain, ...]


class ComparedWhat(Schema):
    """What the index's comparison with the contract's own storage came to."""

    code: Annotated[int, one_of(int(code) for code in StorageComparison)]
    name: Annotated[str, one_of(name_of(code) for code in StorageComparison)]


class IndexedDeployment(Schema):
    """How far a deployment is indexed."""

    block: Annotated[BlockNumber, Field(description="up to which the chain is read")]
    behind: Annotated[Count, Field(description="blocks that are still to be read; 0 at the head")]
    rounds: Annotated[Count, Field(description="rounds that have opened by then")]
    ended: Annotated[Count, Field(description="rounds 1 to here have ended, without a gap")]
    compared: Annotated[
        ComparedWhat,
        Field(description="whether the contract's storage agrees, so that nothing is missing"),
    ]
    waiting: Annotated[Count, Field(description="rounds of which a document is missing")]
    used: Annotated[
        bool,
        Field(description="whether lists come from it now; else from the chain", examples=[True]),
    ]


class IndexStatus(Schema):
    """The index beside the chain."""

    state: Annotated[
        Literal["none", "read", "left_alone"],
        Field(
            description="`left_alone`: it could not be read a moment ago, the service's log says "
            "why, and lists come from the chain"
        ),
    ]
    kept: Annotated[
        bool,
        Field(description="whether this service keeps it at the head itself", examples=[False]),
    ]


class DeploymentStatus(Schema):
    """Where one deployment stands."""

    address: Eip55
    run: Annotated[str, Field(max_length=64, examples=["first"])]
    stage: Literal["open", "registering", "finished"]
    round: Annotated[int, Field(ge=0, description="0 before the first", examples=[2])]
    rounds: RoundNumber
    index: Annotated[
        IndexedDeployment | None, Field(description="null where no index holds anything of it")
    ]
    links: Links


class RefusedManifest(Schema):
    """A manifest that is not served, and why."""

    manifest: Annotated[str, Field(max_length=400, examples=["runs/second/deployment.json"])]
    reason: Annotated[
        str,
        Field(max_length=500, examples=["the manifest is for chain 5, not 131277322940537"]),
    ]


class Versions(Schema):
    """What is running."""

    package: Annotated[str, Field(examples=["0.1.0"])]
    protocol: Annotated[int, Field(ge=1, examples=[1])]
    compiler: Annotated[str, Field(description="of the contract", examples=["vyper 0.4.3"])]


class StatusAnswer(Answer):
    """Chain, deployments, refused manifests and versions."""

    chain: ChainHead
    deployments: tuple[DeploymentStatus, ...]
    refused: tuple[RefusedManifest, ...]
    index: IndexStatus
    versions: Versions
