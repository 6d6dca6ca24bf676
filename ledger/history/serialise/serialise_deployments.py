"""A chain, and a deployment with its fixed parameters and its current state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from ledger.history.documents import read_run
from ledger.history.paths import DeploymentPath
from ledger.history.serialise.values import code_of, time_of
from ledger.io.json import picked
from ledger.protocol.encoding import to_hex
from ledger.protocol.ledger_state import Deployment, LedgerStage
from ledger.protocol.parameters import STRATEGIES, accepted_size
from ledger.protocol.payload_forms import FLOAT32
from ledger.protocol.rules.distance import DIRECTION
from ledger.protocol.types import Digest
from ledger.storage.blobs import BlobReader

if TYPE_CHECKING:
    from ledger.chain.contract.ledger import LedgerSnapshot
    from ledger.history.deployments import ServedDeployment
    from ledger.history.pinned_chain import PinnedChain
    from ledger.history.responses.deployments import (
        Chain,
        ChainHead,
        ContractParameters,
        ContractState,
        DeploymentDetails,
        DeploymentList,
        DeploymentSummary,
        RunParameters,
        Sizes,
    )
    from ledger.history.responses.fields import StageName


def chain_response(chain: PinnedChain) -> Chain:
    """Return the constant properties of a chain."""
    path = chain.path
    return {
        "name": path.name,
        "chain_id": str(path.chain_id),
        "genesis": to_hex(path.genesis),
        "links": {"deployments": f"{path}/deployments"},
    }


def chain_head(chain: PinnedChain) -> ChainHead:
    """Return a chain with its newest block."""
    block = chain.block
    return {
        **chain_response(chain),
        "number": block.number,
        "hash": to_hex(block.hash),
        **time_of(block.timestamp),
    }


def deployment_list(chain: PinnedChain, deployments: Iterable[ServedDeployment]) -> DeploymentList:
    """Return the list of deployments."""
    return {"deployments": [_summary(chain, deployment) for deployment in deployments]}


def deployment_details(chain: PinnedChain, deployment: ServedDeployment) -> DeploymentDetails:
    """Return the fixed parameters of a deployment and the state of its contract."""
    manifest, fixed = deployment.manifest, deployment.fixed
    return {
        "address": manifest.address,
        "run": deployment.run,
        "config": to_hex(fixed.config),
        "block": manifest.block,
        "transaction": manifest.transaction,
        "sizes": _sizes(fixed),
        "contract": _contract(fixed),
        "parameters": _parameters(chain.blobs, fixed.config),
        "state": _state(chain.state(deployment)),
        "links": deployment_path(chain, deployment).links(),
    }


def deployment_path(chain: PinnedChain, deployment: ServedDeployment) -> DeploymentPath:
    """Return the path under which a deployment is served."""
    return DeploymentPath(chain.path, deployment.manifest.address)


def stage_name(stage: LedgerStage) -> StageName:
    """Return a deployment's stage as a word."""
    return cast("StageName", stage.name.lower())


def _summary(chain: PinnedChain, deployment: ServedDeployment) -> DeploymentSummary:
    return {
        "address": deployment.manifest.address,
        "run": deployment.run,
        "config": to_hex(deployment.fixed.config),
        "rounds": deployment.fixed.rounds,
        "sizes": _sizes(deployment.fixed),
        "links": deployment_path(chain, deployment).links(),
    }


def _sizes(fixed: Deployment) -> Sizes:
    return {
        "clients": fixed.clients,
        "trainers": fixed.trainers,
        "members": fixed.members,
        "accepted": accepted_size(fixed.aggregation_ppm, fixed.trainers),
        "replies": fixed.replies,
    }


def _contract(fixed: Deployment) -> ContractParameters:
    names = "aggregation_ppm form rounds commit_blocks deadline_blocks replies beacon registry "
    given = {"form": code_of(fixed.form), "initial_model": fixed.model}
    return cast("ContractParameters", picked(f"{names} initial_model", fixed, **given))


def _parameters(blobs: BlobReader, config: Digest) -> RunParameters | None:
    """Return the parameters of the run's configuration; None if its blob is not available."""
    document = read_run(blobs, config)
    if document is None:
        return None
    parameters = document.parameters
    strategy = {"number": parameters.strategy, "name": STRATEGIES[parameters.strategy]}
    distance = DIRECTION.name if parameters.compares_directions else parameters.distance
    names = "active_ppm committee_ppm aggregation_ppm dimension strategy distance quorum "
    names += "server_rate view_seconds"
    given = {"strategy": strategy, "distance": distance}
    answer = cast("RunParameters", picked(names, parameters, **given))
    if parameters.payload != FLOAT32.name:
        answer["payload"] = parameters.payload
    return answer


def _state(state: LedgerSnapshot) -> ContractState:
    names = "stage round opened_block seed committee model head registered commitments"
    return cast("ContractState", picked(names, state, stage=stage_name(state.stage)))
