"""How far the index is, as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.history.facts.words import coded
from ledger.history.paths import DeploymentPath
from ledger.history.source import SourceUnusableError

if TYPE_CHECKING:
    from ledger.history.deployments import ServedDeployment
    from ledger.history.facts.words import Facts
    from ledger.history.pinned_chain import PinnedChain
    from ledger.index.index import Coverage
    from ledger.index.service_index import ServiceIndex


def coverage_facts(one: Coverage, head: int | None) -> Facts:
    """Return how far a deployment is indexed.

    Args:
        one: as the index says.
        head: number of the chain's newest block; None where it is not known.
    """
    return {
        "block": one.block,
        "behind": None if head is None else max(0, head - one.block),
        "rounds": one.rounds,
        "ended": one.ended,
        "compared": coded(one.compared),
        "waiting": one.waiting,
    }


def index_facts(index: ServiceIndex, *, is_kept: bool) -> Facts:
    """Return how the index beside a chain stands.

    Args:
        index: beside the chain.
        is_kept: whether this service writes it.
    """
    return {"state": index.standing().value, "kept": is_kept}


def indexed_facts(
    index: ServiceIndex, now: PinnedChain, served: list[ServedDeployment]
) -> list[Facts | None]:
    """Return how far each deployment is indexed, None where nothing of it is.

    Args:
        index: beside the chain.
        now: the chain.
        served: the deployments.
    """
    try:
        covered = {one.path: one for one in index.coverage()}
        return [_indexed(index, now, one, covered) for one in served]
    except SourceUnusableError as error:
        index.failed(error)
        return [None for _ in served]


def _indexed(
    index: ServiceIndex,
    now: PinnedChain,
    served: ServedDeployment,
    covered: dict[DeploymentPath, Coverage],
) -> Facts | None:
    found = covered.get(DeploymentPath(now.path, served.ledger.address))
    if found is None:
        return None
    with index.history(served.ledger, now.blobs, now.block) as history:
        return coverage_facts(found, now.block.number) | {"used": history is not None}
