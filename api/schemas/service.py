"""Responses about the service itself: health, readiness, status and versions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from api.schemas.problems import Schema
from ledger.history.responses.deployments import ChainHead
from ledger.history.responses.fields import (
    Answer,
    AsOf,
    Eip55,
    Links,
    Response,
    RoundNumber,
    StageName,
)


class Health(Schema):
    """The process is up; says nothing of the chain."""

    status: Literal["up"] = "up"


class Ready(Schema):
    """The chain can be read."""

    as_of: AsOf
    status: Literal["ready"] = "ready"


class DeploymentStatus(Response):
    """Stage and round of one deployment."""

    address: Eip55
    run: Annotated[str, Field(max_length=64, examples=["first"])]
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


class ServiceStatus(Response):
    """Chain, deployments, refused manifests and versions."""

    chain: ChainHead
    deployments: list[DeploymentStatus]
    refused: list[RefusedManifest]
    versions: Versions


class StatusAnswer(Answer, ServiceStatus):
    """Chain, deployments, refused manifests and versions."""
