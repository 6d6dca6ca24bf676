"""Deployments: what is fixed, and where they stand."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response

from api.http.caching import respond
from api.http.routing import (
    INVALID,
    NOT_MODIFIED,
    NOT_SERVED,
    UNAVAILABLE,
    Address,
    Now,
    declared,
    refuse_unknown,
)
from api.schemas.deployments import DeploymentAnswer, DeploymentsAnswer
from ledger.history.facts.deployments import deployment_facts, deployments_facts

router = APIRouter(
    prefix="/v1/chains/{chain}/deployments",
    tags=["deployments"],
    dependencies=[Depends(refuse_unknown)],
)


@router.get(
    "",
    summary="All deployments",
    response_model=DeploymentsAnswer,
    responses=NOT_MODIFIED
    | declared(_404="another chain is served", _422=INVALID, _502=NOT_SERVED, _503=UNAVAILABLE),
)
def deployments(request: Request, reading: Now) -> Response:
    """List every deployment whose manifest agrees with the chain, by its run's name."""
    served, _ = reading.now.deployments()
    return respond(request, reading, deployments_facts(reading.now, served))


@router.get(
    "/{address}",
    summary="One deployment",
    response_model=DeploymentAnswer,
    responses=NOT_MODIFIED
    | declared(
        _404="no such deployment is served", _422=INVALID, _502=NOT_SERVED, _503=UNAVAILABLE
    ),
)
def deployment(request: Request, reading: Now, address: Address) -> Response:
    """Tell what a deployment has fixed and where its contract stands.

    The configuration's blob is taken by its digest; that contract and configuration agree is not
    verified here.
    """
    return respond(request, reading, deployment_facts(reading.now, reading.deployment(address)))
