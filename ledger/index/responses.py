"""Responses about the index: its coverage of each deployment, and its use by a service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from ledger.history.paths import DeploymentPath
from ledger.history.responses.fields import (
    BlockNumber,
    Count,
    EnumLiteral,
    Response,
    name_of,
    one_of,
)
from ledger.history.serialise.values import code_of
from ledger.history.source import SourceUnusableError
from ledger.index.codes import IndexState, StorageComparison

if TYPE_CHECKING:
    from ledger.history.deployments import ServedDeployment
    from ledger.history.pinned_chain import PinnedChain
    from ledger.index.index import Coverage
    from ledger.index.service_index import ServiceIndex


class ComparedWhat(Response):
    """Result of the index's comparison with the contract's own storage."""

    code: Annotated[int, one_of(int(code) for code in StorageComparison)]
    name: Annotated[str, one_of(name_of(code) for code in StorageComparison)]


class IndexCoverage(Response):
    """Position of the index in one deployment."""

    block: Annotated[BlockNumber, Field(description="up to which the chain is read")]
    behind: Annotated[Count, Field(description="blocks that are not read yet; 0 at the head")]
    rounds: Annotated[Count, Field(description="rounds that have opened by then")]
    ended: Annotated[Count, Field(description="rounds 1 to here have ended, without a gap")]
    compared: Annotated[
        ComparedWhat,
        Field(description="whether the contract's storage agrees, so that nothing is missing"),
    ]
    waiting: Annotated[Count, Field(description="rounds of which a document is missing")]


class IndexedDeployment(IndexCoverage):
    """Position of the index in one deployment, and its use."""

    used: Annotated[
        bool,
        Field(description="whether lists come from it now; else from the chain", examples=[True]),
    ]


class IndexStatus(Response):
    """State of the service's index."""

    state: Annotated[
        IndexState,
        EnumLiteral(),
        Field(
            description="`left_alone`: it could not be read a moment ago, the service's log says "
            "why, and lists come from the chain"
        ),
    ]
    kept: Annotated[
        bool,
        Field(description="whether this service updates it", examples=[False]),
    ]


def index_coverage(coverage: Coverage, head: int) -> IndexCoverage:
    """Return the position of the index in one deployment, given the chain's newest block."""
    return {
        "block": coverage.block,
        "behind": max(0, head - coverage.block),
        "rounds": coverage.rounds,
        "ended": coverage.ended,
        "compared": code_of(coverage.compared),
        "waiting": coverage.waiting,
    }


def indexed_deployments(
    index: ServiceIndex, chain: PinnedChain, deployments: list[ServedDeployment]
) -> list[IndexedDeployment | None]:
    """Return the coverage of each deployment, None where nothing of it is indexed."""
    try:
        covered = {coverage.path: coverage for coverage in index.coverage()}
        return [_indexed(index, chain, deployment, covered) for deployment in deployments]
    except SourceUnusableError as error:
        index.failed(error)
        return [None for _ in deployments]


def _indexed(
    index: ServiceIndex,
    chain: PinnedChain,
    deployment: ServedDeployment,
    covered: dict[DeploymentPath, Coverage],
) -> IndexedDeployment | None:
    coverage = covered.get(DeploymentPath(chain.path, deployment.ledger.address))
    if coverage is None:
        return None
    with index.history(deployment.ledger, chain.blobs, chain.block) as history:
        return {
            **index_coverage(coverage, chain.block.number),
            "used": history is not None,
        }
