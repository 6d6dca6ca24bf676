"""A chain, and a deployment with its fixed parameters and its current state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.history.documents import read_run
from ledger.history.paths import DeploymentPath
from ledger.history.serialise.values import code_of, time_of
from ledger.protocol.encoding import to_hex
from ledger.protocol.ledger_state import LedgerStage
from ledger.protocol.parameters import STRATEGIES, accepted_size
from ledger.protocol.payload_forms import FLOAT32
from ledger.protocol.rules.distance import DIRECTION

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger.chain.contract.committee_ledger import LedgerSnapshot
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
    from ledger.protocol.ledger_state import Deployment
    from ledger.protocol.types import Digest
    from ledger.storage.blobs import BlobReader


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
    match stage:
        case LedgerStage.REGISTERING:
            return "registering"
        case LedgerStage.OPEN:
            return "open"
        case LedgerStage.FINISHED:
            return "finished"


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
    return {
        "aggregation_ppm": fixed.aggregation_ppm,
        "form": code_of(fixed.form),
        "rounds": fixed.rounds,
        "commit_blocks": fixed.commit_blocks,
        "deadline_blocks": fixed.deadline_blocks,
        "replies": fixed.replies,
        "beacon": fixed.beacon,
        "registry": to_hex(fixed.registry),
        "initial_model": to_hex(fixed.model),
    }


def _parameters(blobs: BlobReader, config: Digest) -> RunParameters | None:
    """Return the parameters of the run's configuration; None if its blob is not available."""
    document = read_run(blobs, config)
    if document is None:
        return None
    parameters = document.parameters
    answer: RunParameters = {
        "active_ppm": parameters.active_ppm,
        "committee_ppm": parameters.committee_ppm,
        "aggregation_ppm": parameters.aggregation_ppm,
        "dimension": parameters.dimension,
        "strategy": {"number": parameters.strategy, "name": STRATEGIES[parameters.strategy]},
        "distance": DIRECTION.name if parameters.compares_directions else parameters.distance,
        "quorum": parameters.quorum,
        "server_rate": parameters.server_rate,
        "view_seconds": parameters.view_seconds,
    }
    if parameters.payload != FLOAT32.name:
        answer["payload"] = parameters.payload
    return answer


def _state(state: LedgerSnapshot) -> ContractState:
    return {
        "stage": stage_name(state.stage),
        "round": state.round,
        "opened_block": state.opened_block,
        "seed": to_hex(state.seed),
        "committee": to_hex(state.committee),
        "model": to_hex(state.model),
        "head": to_hex(state.head),
        "registered": state.registered,
        "commitments": to_hex(state.commitments),
    }
