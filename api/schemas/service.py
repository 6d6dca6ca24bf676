"""Answers about the service itself, and problems."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from ledger.history.answers import ChainHead
from ledger.history.fields import (
    Answer,
    AsOf,
    Eip55,
    Links,
    Response,
    RoundNumber,
    StageName,
)

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
