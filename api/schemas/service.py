"""Answers about the service itself: is it up, what does it read, what does it serve."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from api.schemas.words import (
    Answer,
    BlockNumber,
    Digest32,
    Eip55,
    Links,
    Rfc3339,
    RoundNumber,
    Schema,
    Uint,
    UnixTime,
)


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


class DeploymentStatus(Schema):
    """Where one deployment stands."""

    address: Eip55
    run: Annotated[str, Field(max_length=64, examples=["first"])]
    stage: Literal["open", "registering", "finished"]
    round: Annotated[int, Field(ge=0, description="0 before the first", examples=[2])]
    rounds: RoundNumber
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
    versions: Versions
