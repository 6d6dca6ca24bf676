"""Answers about chains, deployments, clients, digests and series, built from the history.

Nothing proves accuracy: only the process that has played the run reports it. It is shown as a
claim, with the accuracy of always answering the commonest class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, cast

from ledger.chain.addresses import checksum
from ledger.claims import ClaimedRound, claims_of
from ledger.history.history import decode_cursor, encode_cursor
from ledger.history.queries import DeploymentPath, RoundPage
from ledger.history.round import DigestKind, Occurrence, Participation, Tally, read_run
from ledger.history.serialise_rounds import ban_body, code_of, end_block, part_entry, time_of
from ledger.io.home import RunPaths
from ledger.io.parsing import picked
from ledger.protocol.encoding import to_hex
from ledger.protocol.errors import EncodingError
from ledger.protocol.ledger_state import Deployment, LedgerStage
from ledger.protocol.parameters import STRATEGIES, accepted_size
from ledger.protocol.payloads import FLOAT32
from ledger.protocol.rules.distance import DIRECTION
from ledger.protocol.types import ClientId, Digest, RegisteredClient
from ledger.storage.blobs import BlobReader

if TYPE_CHECKING:
    from ledger.chain.round_ledger import LedgerSnapshot
    from ledger.history.answers import (
        Chain,
        ChainHead,
        Claimed,
        ClaimsState,
        ClientEntry,
        ClientRound,
        ClientRoundsPage,
        ClientsPage,
        ContractParameters,
        ContractState,
        DeploymentDetails,
        DeploymentList,
        DeploymentSummary,
        DigestPage,
        DigestPlace,
        OneClient,
        RunParameters,
        Series,
        Sizes,
    )
    from ledger.history.deployments import PinnedChain, ServedDeployment
    from ledger.history.fields import StageName
    from ledger.history.history import FoldedHistory
    from ledger.history.round import HistoryRound


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


def clients_page(history: FoldedHistory, limit: int, cursor: str | None) -> ClientsPage:
    """Return a page of clients, ascending."""
    registered = history.registered()
    scope = repr(("clients", str(history.path)))
    start = 0 if cursor is None else decode_cursor(cursor, scope, len(registered) - 1)
    end = min(start + limit, len(registered))
    tally = history.tally()
    return {
        "ended_rounds": tally.rounds,
        "records_missing": tally.records_missing,
        "clients": [_entry(history, registered, tally, index) for index in range(start, end)],
        "next_cursor": encode_cursor(end, scope) if end < len(registered) else None,
    }


def one_client(history: FoldedHistory, client: ClientId) -> OneClient:
    """Return one registered client, with the proof of its ban."""
    tally, registered = history.tally(), history.registered()
    banned_in = registered[client].banned_in
    held = history.round(banned_in) if banned_in else None
    bans = dict(zip(held.banned, held.bans, strict=True)) if held else {}
    return {
        "ended_rounds": tally.rounds,
        "records_missing": tally.records_missing,
        "client": _entry(history, registered, tally, client),
        "ban": ban_body(history, bans[client]) if client in bans else None,
    }


def client_rounds_page(
    history: FoldedHistory, client: ClientId, page: RoundPage
) -> ClientRoundsPage:
    """Return a page of the rounds that a client took part in."""
    parts = zip(page.rounds, history.parts(client, page.rounds), strict=True)
    return {
        "rounds": [_client_round(history, *both) for both in parts],
        "scanned": page.scanned,
        "next_cursor": page.next_cursor,
    }


def _entry(
    history: FoldedHistory, registered: tuple[RegisteredClient, ...], tally: Tally, client: int
) -> ClientEntry:
    own = registered[client]
    entry = {
        "client": client,
        "address": checksum(own.address),
        "samples": str(own.samples),
        "banned_in_round": own.banned_in or None,
        **asdict(tally.clients[client]),
        "links": history.path.client_links(client),
    }
    return cast("ClientEntry", entry)


_CLIENT_ROUND = (
    "round status role place empty_seat committed commitment payload outcome rank distance "
    "distance_bits reason scores refused voted primary_of incidents banned ended links"
)


def _client_round(history: FoldedHistory, round_: HistoryRound, part: Participation) -> ClientRound:
    given = {
        "round": round_.round,
        "status": round_.status,
        "ended": end_block(history, round_),
        "links": history.path.round_links(round_.round),
    }
    return cast("ClientRound", part_entry(_CLIENT_ROUND, part, **given))


LAST_POSITION = 2**32 - 1

BLOB_KINDS = frozenset(
    {
        DigestKind.CONFIGURATION,
        DigestKind.INITIAL_MODEL,
        DigestKind.PAYLOAD,
        DigestKind.SCORE_VECTOR,
        DigestKind.MODEL,
        DigestKind.RECORD,
        DigestKind.INCIDENTS,
    }
)
"""Kinds that are the sha256 of a file, as `sha256sum` prints it."""


def digest_page(
    history: FoldedHistory, digest: Digest, limit: int, cursor: str | None
) -> DigestPage:
    """Return a page of the places of a digest, the deployment's first, then by round."""
    scope = repr(("digests", str(history.path), digest.hex()))
    start = 0 if cursor is None else decode_cursor(cursor, scope, LAST_POSITION)
    occurrences = history.occurrences(digest, start, limit + 1)
    has_more = len(occurrences) > limit
    return {
        "digest": to_hex(digest),
        "items": [_item(history, digest, occurrence) for occurrence in occurrences[:limit]],
        "next_cursor": encode_cursor(start + limit, scope) if has_more else None,
    }


def _item(history: FoldedHistory, digest: Digest, occurrence: Occurrence) -> DigestPlace:
    path = history.path
    links = {"deployment": str(path)}
    if occurrence.round is not None:
        links["round"] = path.round_links(occurrence.round)["self"]
    if occurrence.client is not None:
        links["client"] = path.client_links(occurrence.client)["self"]
    if occurrence.kind in BLOB_KINDS:
        links["blob"] = f"/v1/blobs/{digest.hex()}"
    return {
        "kind": occurrence.kind.name.lower(),
        "round": occurrence.round,
        "client": occurrence.client,
        "links": links,
    }


MAX_POINTS = 2_000
"""Rounds in one response; a longer run is thinned evenly, and keeps its last round."""


def series_response(rounds: Iterable[HistoryRound], folder: RunPaths | None) -> Series:
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
