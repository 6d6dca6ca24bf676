"""Deployments: what is fixed, and where they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Depends, Request, Response

from api.answers.round import deployment_path, selection_form
from api.http.caching import respond
from api.http.routing import (
    INVALID,
    NOT_MODIFIED,
    NOT_SERVED,
    UNAVAILABLE,
    Address,
    declared,
    refuse_unknown,
)
from api.reading import Now, Reading, hexed
from api.routes.service import stage_name
from api.schemas.deployments import (
    ContractParameters,
    ContractState,
    DeploymentAnswer,
    DeploymentsAnswer,
    DeploymentSummary,
    RunParameters,
    SelectionStrategy,
    Sizes,
)
from ledger.audit.history import read_run
from ledger.protocol.parameters import accepted_size

if TYPE_CHECKING:
    from api.deployments import Served
    from ledger.protocol import ledger_state

router = APIRouter(
    prefix="/v1/deployments", tags=["deployments"], dependencies=[Depends(refuse_unknown)]
)


@router.get(
    "",
    summary="All deployments",
    response_model=DeploymentsAnswer,
    responses=NOT_MODIFIED | declared(_422=INVALID, _502=NOT_SERVED, _503=UNAVAILABLE),
)
def deployments(request: Request, reading: Now) -> Response:
    """List every deployment whose manifest agrees with the chain, by its run's name."""
    served, _ = reading.service.deployments.all(reading.chain)
    answer = DeploymentsAnswer(
        as_of=reading.as_of, deployments=tuple(_summary(each) for each in served)
    )
    return respond(request, reading, answer)


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
    served = reading.deployment(address)
    found = served.manifest
    answer = DeploymentAnswer(
        as_of=reading.as_of,
        address=found.address,
        run=served.run,
        config=hexed(served.sizes.config),
        block=found.block,
        transaction=found.transaction,
        sizes=_sizes(served.sizes),
        contract=_fixed(served.sizes),
        parameters=_parameters(reading, served.sizes),
        state=_state(reading, served),
        links=_links(served),
    )
    return respond(request, reading, answer)


def _summary(served: Served) -> DeploymentSummary:
    return DeploymentSummary(
        address=served.manifest.address,
        run=served.run,
        config=hexed(served.sizes.config),
        rounds=served.sizes.rounds,
        sizes=_sizes(served.sizes),
        links=_links(served),
    )


def _links(served: Served) -> dict[str, str]:
    path = deployment_path(served.manifest.address)
    return {"self": path, "rounds": f"{path}/rounds", "clients": f"{path}/clients"}


def _sizes(fixed: ledger_state.Deployment) -> Sizes:
    return Sizes(
        clients=fixed.clients,
        trainers=fixed.trainers,
        members=fixed.members,
        accepted=accepted_size(fixed.aggregation_ppm, fixed.trainers),
        replies=fixed.replies,
    )


def _fixed(fixed: ledger_state.Deployment) -> ContractParameters:
    return ContractParameters(
        aggregation_ppm=fixed.aggregation_ppm,
        form=selection_form(fixed.form),
        rounds=fixed.rounds,
        commit_blocks=fixed.commit_blocks,
        deadline_blocks=fixed.deadline_blocks,
        replies=fixed.replies,
        beacon=fixed.beacon.value,
        registry=hexed(fixed.registry),
        initial_model=hexed(fixed.model),
    )


def _parameters(reading: Reading, fixed: ledger_state.Deployment) -> RunParameters | None:
    document = read_run(reading.service.blobs, fixed.config)
    if document is None:
        return None
    p = document.parameters
    return RunParameters(
        active_ppm=p.active_ppm,
        committee_ppm=p.committee_ppm,
        aggregation_ppm=p.aggregation_ppm,
        dimension=p.dimension,
        strategy=SelectionStrategy(number=p.selection.number, name=p.selection.name),
        scoring=p.scoring,
        distance=p.distance,
        reference=p.reference,
        threshold=p.threshold,
        quorum=p.quorum.value,
        server_rate=p.server_rate,
        scores_checked=p.scores_checked,
        view_seconds=p.view_seconds,
    )


def _state(reading: Reading, served: Served) -> ContractState:
    state = served.state(reading.block.number, reading.final)
    return ContractState(
        stage=stage_name(state.stage),
        round=state.round,
        opened_block=state.opened_block,
        seed=hexed(state.seed),
        committee=hexed(state.committee),
        model=hexed(state.model),
        head=hexed(state.head),
        registered=state.registered,
        commitments=hexed(state.commitments),
    )
