"""Answers about chains, deployments and a run over its rounds, built from the history.

Nothing proves accuracy: only the process that has played the run reports it. It is shown as a
claim, with the accuracy of always answering the commonest class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, NotRequired, cast

from pydantic import Field

from ledger.claims import ClaimedRound, claims_of
from ledger.history.fields import (
    Answer,
    BlockNumber,
    Client,
    Count,
    Digest32,
    Eip55,
    EnumLiteral,
    Links,
    Response,
    Rfc3339,
    RoundNumber,
    SelectionForm,
    StageName,
    Status,
    Uint,
    UnixTime,
    code_of,
    one_of,
    rule_of,
    time_of,
)
from ledger.history.queries import DeploymentPath
from ledger.history.round import read_run
from ledger.io.home import RunPaths
from ledger.io.parsing import picked
from ledger.protocol.encoding import to_hex
from ledger.protocol.errors import EncodingError
from ledger.protocol.ledger_state import Deployment, LedgerStage
from ledger.protocol.parameters import STRATEGIES, accepted_size
from ledger.protocol.payloads import FLOAT32, PAYLOAD_FORMS
from ledger.protocol.rules.distance import DIRECTION, SQUARED
from ledger.protocol.types import Beacon, Digest, Quorum
from ledger.storage.blobs import BlobReader

if TYPE_CHECKING:
    from ledger.chain.contract.ledger import LedgerSnapshot
    from ledger.history.deployments import PinnedChain, ServedDeployment
    from ledger.history.history import FoldedHistory
    from ledger.history.round import HistoryRound


RunName = Annotated[str, Field(max_length=64, examples=["first"])]
Millionths = Annotated[
    int, Field(ge=0, le=10**6, description="a share in millionths", examples=[500_000])
]


class Chain(Response):
    """A chain and its name in paths."""

    name: Annotated[str, Field(max_length=90, examples=["131277322940537-5c5c5c5c"])]
    chain_id: Annotated[Uint, Field(examples=["131277322940537"])]
    genesis: Annotated[Digest32, Field(description="hash of block 0")]
    links: Links


def chain_response(chain: PinnedChain) -> Chain:
    """Return the constant properties of a chain."""
    path = chain.path
    return {
        "name": path.name,
        "chain_id": str(path.chain_id),
        "genesis": to_hex(path.genesis),
        "links": {"deployments": f"{path}/deployments"},
    }


class ChainHead(Chain):
    """A chain and its newest block."""

    number: BlockNumber
    hash: Digest32
    time: UnixTime
    at: Rfc3339


def chain_head(chain: PinnedChain) -> ChainHead:
    """Return a chain with its newest block."""
    block = chain.block
    return {
        **chain_response(chain),
        "number": block.number,
        "hash": to_hex(block.hash),
        **time_of(block.timestamp),
    }


class ChainsAnswer(Answer):
    """The chains of the service."""

    chains: list[Chain]


class Sizes(Response):
    """Numbers of participants of a round."""

    clients: Annotated[Count, Field(description="K, registered clients", examples=[12])]
    trainers: Annotated[Count, Field(description="n, training clients of a round", examples=[6])]
    members: Annotated[Count, Field(description="C, members of a committee", examples=[4])]
    accepted: Annotated[
        Count, Field(description="m, if all n are ranked; strategy III decides itself")
    ]
    replies: Annotated[
        Count, Field(description="equal replies from others than the primary that decide")
    ]


def _sizes(fixed: Deployment) -> Sizes:
    return {
        "clients": fixed.clients,
        "trainers": fixed.trainers,
        "members": fixed.members,
        "accepted": accepted_size(fixed.aggregation_ppm, fixed.trainers),
        "replies": fixed.replies,
    }


class DeploymentSummary(Response):
    """One deployment in the list."""

    address: Eip55
    run: RunName
    config: Digest32
    rounds: Annotated[RoundNumber, Field(description="T, the last round", examples=[5])]
    sizes: Sizes
    links: Links


def _summary(chain: PinnedChain, deployment: ServedDeployment) -> DeploymentSummary:
    return {
        "address": deployment.manifest.address,
        "run": deployment.run,
        "config": to_hex(deployment.fixed.config),
        "rounds": deployment.fixed.rounds,
        "sizes": _sizes(deployment.fixed),
        "links": deployment_path(chain, deployment).links(),
    }


def deployment_path(chain: PinnedChain, deployment: ServedDeployment) -> DeploymentPath:
    """Return the path under which a deployment is served."""
    return DeploymentPath(chain.path, deployment.manifest.address)


class DeploymentsAnswer(Answer):
    """All deployments, by run."""

    deployments: list[DeploymentSummary]


def deployment_list(
    chain: PinnedChain, deployments: Iterable[ServedDeployment]
) -> DeploymentsAnswer:
    """Return the list of deployments."""
    return {"deployments": [_summary(chain, deployment) for deployment in deployments]}


class ContractParameters(Response):
    """Parameters that the contract itself fixes."""

    aggregation_ppm: Millionths
    form: SelectionForm
    rounds: Annotated[RoundNumber, Field(examples=[5])]
    commit_blocks: Annotated[
        Count, Field(description="blocks after the opening one that take commitments")
    ]
    deadline_blocks: Annotated[
        Count, Field(description="after which an undecided round may be abandoned", examples=[16])
    ]
    replies: Annotated[Count, Field(description="that decide, beside the primary's request")]
    beacon: Annotated[Beacon, EnumLiteral("none", "block")]
    registry: Digest32
    initial_model: Digest32


def _contract(fixed: Deployment) -> ContractParameters:
    names = "aggregation_ppm form rounds commit_blocks deadline_blocks replies beacon registry "
    given = {"form": code_of(fixed.form), "initial_model": fixed.model}
    return cast("ContractParameters", picked(f"{names} initial_model", fixed, **given))


class SelectionStrategy(Response):
    """The strategy, which determines every rule, by number and name."""

    number: Annotated[int, one_of(STRATEGIES)]
    name: Annotated[str, one_of(STRATEGIES.values())]


class RunParameters(Response):
    """Parameters of the run's configuration, from the blob that the contract names by digest."""

    active_ppm: Millionths
    committee_ppm: Millionths
    aggregation_ppm: Millionths
    dimension: Annotated[Count, Field(description="d, parameters of the model", examples=[650])]
    strategy: SelectionStrategy
    distance: Annotated[str, rule_of((SQUARED.name, DIRECTION.name))]
    quorum: Annotated[Quorum, EnumLiteral("paper", "bft")]
    server_rate: Annotated[float, Field(gt=0, examples=[1.0])]
    view_seconds: Annotated[
        Count, Field(description="how long view 0 lasts; each later one twice as long")
    ]
    payload: NotRequired[
        Annotated[
            str,
            one_of(name for name in PAYLOAD_FORMS if name != FLOAT32.name),
            Field(description="form of the updates' payloads; float32 if it is not given"),
        ]
    ]


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


class ContractState(Response):
    """The contract's storage at the block of `as_of`."""

    stage: StageName
    round: Annotated[int, Field(ge=0, description="0 before the first", examples=[2])]
    opened_block: BlockNumber
    seed: Digest32
    committee: Annotated[Digest32, Field(description="set digest of S_c")]
    model: Annotated[Digest32, Field(description="sha256 of w_t")]
    head: Annotated[Digest32, Field(description="commits to the whole history")]
    registered: Count
    commitments: Annotated[Digest32, Field(description="running digest of the open round's")]


def _state(state: LedgerSnapshot) -> ContractState:
    names = "stage round opened_block seed committee model head registered commitments"
    return cast("ContractState", picked(names, state, stage=stage_name(state.stage)))


def stage_name(stage: LedgerStage) -> StageName:
    """Return a deployment's stage as a word."""
    return cast("StageName", stage.name.lower())


class DeploymentAnswer(Answer):
    """One deployment: its fixed parameters and its current state."""

    address: Eip55
    run: RunName
    config: Annotated[Digest32, Field(description="sha256 of the run's configuration")]
    block: Annotated[BlockNumber, Field(description="that created the contract")]
    transaction: Digest32
    sizes: Sizes
    contract: ContractParameters
    parameters: Annotated[
        RunParameters | None, Field(description="null if the configuration's blob is not there")
    ]
    state: ContractState
    links: Links


def deployment_details(chain: PinnedChain, deployment: ServedDeployment) -> DeploymentAnswer:
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


ClaimsState = Literal["read", "absent", "unreadable"]
Share = Annotated[float, Field(ge=0, le=1, examples=[0.91])]


class Claimed(Response):
    """Claims of the run's own files, which no audit checks."""

    accuracy: Annotated[
        list[Share | None],
        Field(description="on the test set, after the round; null where it was not measured"),
    ]
    floor: Annotated[
        list[Share | None], Field(description="accuracy of always answering the commonest class")
    ]
    malicious_accepted: Annotated[
        list[Count | None], Field(description="accepted updates that attackers sent")
    ]


class SeriesAnswer(Answer):
    """A run over its rounds, ascending."""

    round: list[RoundNumber]
    status: list[Status]
    ranked: list[Count | None]
    accepted: list[Count | None]
    views: Annotated[
        list[tuple[int, int] | None],
        Field(description="of the aggregation and the election, from 0", examples=[[[0, 1]]]),
    ]
    committee: Annotated[list[list[Client]], Field(description="S_c of each round, by places")]
    claims: Annotated[
        ClaimsState,
        Field(
            description="whether the run's own files were read; unreadable ones are damaged, "
            "larger than 32 MiB, or no files"
        ),
    ]
    claimed: Annotated[Claimed | None, Field(description="null unless they were read")]


def series_response(rounds: Iterable[HistoryRound], folder: RunPaths | None) -> SeriesAnswer:
    """Return a run's rounds as columns of equal length.

    Args:
        rounds: ascending, by their openings and ends.
        folder: of the run, for its claims; None where it is not available.
    """
    points = list(rounds)
    state, rows = _claims(points, folder)
    claimed = _columns([rows.get(point.round) for point in points]) if state == "read" else None
    return {
        "round": [point.round for point in points],
        "status": [point.status for point in points],
        "ranked": [len(point.decided.ranking) if point.decided else None for point in points],
        "accepted": [len(point.decided.accepted) if point.decided else None for point in points],
        "views": [point.decided.views if point.decided else None for point in points],
        "committee": [list(point.committee) for point in points],
        "claims": state,
        "claimed": claimed,
    }


MAX_POINTS = 2_000
"""Rounds in one response; a longer run is thinned evenly, and keeps its last round."""


def chart_rounds(history: FoldedHistory) -> list[HistoryRound]:
    """Return the rounds that a chart shows, ascending, by their openings and ends."""
    newest = history.newest()
    numbers = chart_points(newest)
    if len(numbers) == newest:
        return history.rounds(1, newest) if newest else []
    return history.some(numbers)


def chart_points(newest: int) -> list[int]:
    """Return the numbers of the rounds that a chart shows: all, or evenly thinned ones."""
    step = -(-newest // MAX_POINTS) if newest else 1
    numbers = list(range(1, newest + 1, step))
    return numbers if not numbers or numbers[-1] == newest else [*numbers, newest]


def _claims(
    points: Sequence[HistoryRound], folder: RunPaths | None
) -> tuple[ClaimsState, dict[int, ClaimedRound]]:
    """Return the claims of a run's files about some rounds, and whether they could be read."""
    if folder is None:
        return "absent", {}
    try:
        return "read", claims_of(folder, {point.round for point in points})
    except (EncodingError, OSError):
        return "unreadable", {}


def _columns(rows: Sequence[ClaimedRound | None]) -> Claimed:
    names = ("accuracy", "floor", "malicious_accepted")
    return cast("Claimed", {name: [getattr(row, name, None) for row in rows] for name in names})
