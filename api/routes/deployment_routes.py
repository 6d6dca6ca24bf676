"""Endpoints of deployments."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response

from api.http.caching import respond
from api.http.openapi import OF_DEPLOYMENT, OF_DEPLOYMENTS, declared
from api.http.parameters import Address, OneChain, refuse_unknown
from api.routes.federation_routes import federations_of
from ledger.history.responses.deployments import DeploymentAnswer, DeploymentsAnswer
from ledger.history.serialise.serialise_deployments import deployment_details, deployment_list

deployments_router = APIRouter(
    prefix="/v1/chains/{chain}/deployments",
    tags=["deployments"],
    dependencies=[Depends(refuse_unknown)],
)


@deployments_router.get(
    "",
    summary="All deployments",
    operation_id="list_deployments",
    response_model=DeploymentsAnswer,
    responses=declared(*OF_DEPLOYMENTS),
)
def deployments(request: Request, reading: OneChain) -> Response:
    """List every deployment whose manifest agrees with the chain, by its run's name."""
    served, _ = reading.chain.deployments()
    return respond(request, reading, deployment_list(reading.chain, served))


@deployments_router.get(
    "/{address}",
    summary="One deployment",
    operation_id="read_deployment",
    response_model=DeploymentAnswer,
    responses=declared(*OF_DEPLOYMENT),
)
def deployment(request: Request, reading: OneChain, address: Address) -> Response:
    """Return the fixed parameters of a deployment and the state of its contract.

    The configuration's blob is found by its digest; that contract and configuration agree is not
    verified here.
    """
    details = deployment_details(reading.chain, reading.deployment(address))
    if federations_of(request).is_enabled:
        details["links"]["federation"] = f"{details['links']['self']}/federation"
    return respond(request, reading, details)
