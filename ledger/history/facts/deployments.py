"""A deployment: what it has fixed, and where its contract stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.history.documents import read_run
from ledger.history.facts.words import coded, hexed
from ledger.history.paths import DeploymentPath
from ledger.protocol.ledger_state import LedgerStage
from ledger.protocol.parameters import accepted_size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledger.chain.contract.committee_ledger import LedgerSnapshot
    from ledger.history.deployments import ServedDeployment
    from ledger.history.facts.words import Facts
    from ledger.history.pinned_chain import PinnedChain
    from ledger.protocol.ledger_state import Deployment
    from ledger.protocol.types import Digest
    from ledger.storage.blobs import BlobReader


def deployments_facts(now: PinnedChain, served: Iterable[ServedDeployment]) -> Facts:
    """Return the list of deployments.

    Args:
        now: the chain.
        served: those on it.
    """
    return {"deployments": [_line(now, each) for each in served]}


def deployment_facts(now: PinnedChain, served: ServedDeployment) -> Facts:
    """Return what a deployment has fixed and where its contract stands.

    Args:
        now: the chain.
        served: the deployment.
    """
    found, fixed = served.manifest, served.fixed
    return {
        "address": found.address,
        "run": served.run,
        "config": hexed(fixed.config),
        "block": found.block,
        "transaction": found.transaction,
        "sizes": _sizes(fixed),
        "contract": _contract(fixed),
        "parameters": _parameters(now.blobs, fixed.config),
        "state": _state(now.state(served)),
        "links": _path(now, served).links(),
    }


def standing_facts(now: PinnedChain, served: ServedDeployment) -> Facts:
    """Return where a deployment stands, in a line.

    Args:
        now: the chain.
        served: the deployment.
    """
    state = now.state(served)
    return {
        "address": served.manifest.address,
        "run": served.run,
        "stage": stage_name(state.stage),
        "round": state.round,
        "rounds": served.fixed.rounds,
        "links": _path(now, served).links(),
    }


def stage_name(stage: LedgerStage) -> str:
    """Return where a deployment stands, as a word."""
    match stage:
        case LedgerStage.REGISTERING:
            return "registering"
        case LedgerStage.OPEN:
            return "open"
        case LedgerStage.FINISHED:
            return "finished"


def _path(now: PinnedChain, served: ServedDeployment) -> DeploymentPath:
    return DeploymentPath(now.path, served.manifest.address)


def _line(now: PinnedChain, served: ServedDeployment) -> Facts:
    return {
        "address": served.manifest.address,
        "run": served.run,
        "config": hexed(served.fixed.config),
        "rounds": served.fixed.rounds,
        "sizes": _sizes(served.fixed),
        "links": _path(now, served).links(),
    }


def _sizes(fixed: Deployment) -> Facts:
    return {
        "clients": fixed.clients,
        "trainers": fixed.trainers,
        "members": fixed.members,
        "accepted": accepted_size(fixed.aggregation_ppm, fixed.trainers),
        "replies": fixed.replies,
    }


def _contract(fixed: Deployment) -> Facts:
    return {
        "aggregation_ppm": fixed.aggregation_ppm,
        "form": coded(fixed.form),
        "rounds": fixed.rounds,
        "commit_blocks": fixed.commit_blocks,
        "deadline_blocks": fixed.deadline_blocks,
        "replies": fixed.replies,
        "beacon": fixed.beacon.value,
        "registry": hexed(fixed.registry),
        "initial_model": hexed(fixed.model),
    }


def _parameters(blobs: BlobReader, config: Digest) -> Facts | None:
    """Return what the run's configuration adds; None if its blob is not there."""
    document = read_run(blobs, config)
    if document is None:
        return None
    p = document.parameters
    return {
        "active_ppm": p.active_ppm,
        "committee_ppm": p.committee_ppm,
        "aggregation_ppm": p.aggregation_ppm,
        "dimension": p.dimension,
        "strategy": {"number": p.selection.number, "name": p.selection.name},
        "scoring": p.scoring,
        "distance": p.distance,
        "reference": p.reference,
        "threshold": p.threshold,
        "quorum": p.quorum.value,
        "server_rate": p.server_rate,
        "scores_checked": p.scores_checked,
        "view_seconds": p.view_seconds,
    }


def _state(state: LedgerSnapshot) -> Facts:
    return {
        "stage": stage_name(state.stage),
        "round": state.round,
        "opened_block": state.opened_block,
        "seed": hexed(state.seed),
        "committee": hexed(state.committee),
        "model": hexed(state.model),
        "head": hexed(state.head),
        "registered": state.registered,
        "commitments": hexed(state.commitments),
    }
