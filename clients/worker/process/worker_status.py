"""The status file of a worker, rewritten whenever something has changed."""

from __future__ import annotations

import json
import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ledger.chain.addresses import checksum
from ledger.io.home import DISK, Disk, read_file
from ledger.io.json import parse_json
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from clients.worker.process.worker_metrics import WorkerCounters
    from clients.worker.round_participants import RoundParticipants
    from clients.worker.worker import Worker
    from ledger.actors.view import ChainView

FORMAT = 1
MAX_STATUS_BYTES = 4 << 20
STARTING = "starting"
"""Name of a failure that keeps a worker from starting."""


class WorkerState(StrEnum):
    """State of a worker."""

    STARTING = "starting"
    RUNNING = "running"
    LEAVING = "leaving"
    ENDED = "ended"


class ClientRole(StrEnum):
    """Role of a client in the open round."""

    TRAINER = "trainer"
    MEMBER = "member"
    SITS_OUT = "sits-out"
    IDLE = "idle"
    BANNED = "banned"


def worker_status(
    worker: Worker, counts: WorkerCounters, stand: WorkerState, account: str
) -> dict[str, Any]:
    """Return a worker's status after a step; `account` pays, EIP-55."""
    newest, final, chain = worker.newest_block, worker.final_state, worker.chain
    evaluation = worker.measuring.newest
    return {
        "format": FORMAT,
        "stand": str(stand),
        "pid": os.getpid(),
        "account": account,
        "clients": [int(client) for client in worker.hosting.clients],
        "round": None if final is None else final.round,
        "is_finished": worker.is_finished,
        "roles": _roles(worker, chain),
        "view": _view(worker),
        "head": None if final is None else f"0x{final.head.hex()}",
        "model": None if final is None else f"0x{final.model.hex()}",
        "block": None if newest is None else newest.number,
        "final_block": None if chain is None else chain.final_block,
        "last_error": worker.failures.last,
        "troubles": {
            str(part): {"says": failure.sentence, "times": failure.times}
            for part, failure in sorted(worker.failures.ongoing.items())
        },
        "own_measurement": None
        if evaluation is None
        else {"round": evaluation.round, "accuracy": evaluation.accuracy, "loss": evaluation.loss},
        "counts": {
            "rounds": counts.rounds,
            "commitments": counts.commitments,
            "votes": counts.votes,
            "views": counts.views,
            "bytes_put": counts.bytes_put,
            "bytes_got": counts.bytes_got,
            "errors": {str(part): n for part, n in sorted(worker.failures.counts.items())},
        },
    }


def status_before(stand: WorkerState, pid: int, says: str = "", times: int = 0) -> dict[str, Any]:
    """Return the status of a worker that knows no round yet.

    Args:
        says: what it waits for; empty for nothing.
    """
    return {
        "format": FORMAT,
        "stand": str(stand),
        "pid": pid,
        "account": None,
        "clients": [],
        "round": None,
        "is_finished": False,
        "roles": {},
        "view": None,
        "head": None,
        "model": None,
        "block": None,
        "final_block": None,
        "last_error": f"{STARTING}: {says}" if says else None,
        "troubles": {STARTING: {"says": says, "times": times}} if says else {},
        "own_measurement": None,
        "counts": {
            "rounds": 0,
            "commitments": 0,
            "votes": 0,
            "views": 0,
            "bytes_put": 0,
            "bytes_got": 0,
            "errors": {STARTING: times} if times else {},
        },
    }


class StatusFile:
    """The status file of a worker, written whole but not durably."""

    def __init__(self, path: Path, *, disk: Disk = DISK) -> None:
        self._path = path
        self._disk = disk
        self._written: dict[str, Any] | None = None

    def write(self, status: dict[str, Any], at: float) -> None:
        """Write a changed status with a time in Unix seconds; a full disk is ignored."""
        if status == self._written:
            return
        data = json.dumps({**status, "at": at}, indent=1).encode() + b"\n"
        try:
            self._disk.write_whole(self._path, data, durable=False)
        except OSError:
            return
        self._written = status


def read_status(path: Path) -> dict[str, Any]:
    """Return the status that a worker wrote last."""
    try:
        status = parse_json(read_file(path, MAX_STATUS_BYTES))
    except FileNotFoundError as error:
        raise ConfigurationError(f"{path}: no worker has ever run on this folder") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from error
    if not isinstance(status, dict) or status.get("format") != FORMAT:
        raise ConfigurationError(f"{path}: no status of this version's workers")
    return status


def _roles(worker: Worker, chain: ChainView | None) -> dict[str, dict[str, Any]]:
    """Return each client's role in the open round, by its index."""
    seats = worker.seats
    if chain is None or seats is None:
        return {}
    committed = {mined.client for mined in chain.commitments}
    announced = set() if seats.view is None else set(seats.view.announced)
    return {
        str(client): {
            "role": str(_role(chain, seats, client)),
            "address": checksum(worker.hosting.signers[client].address),
            "committed": client in committed,
            "published": client in announced,
        }
        for client in worker.hosting.clients
    }


def _role(chain: ChainView, seats: RoundParticipants, client: ClientId) -> ClientRole:
    if chain.registry[client].is_banned_in(chain.round):
        return ClientRole.BANNED
    if client not in seats.active:
        return ClientRole.IDLE
    if not seats.is_serving(client):
        return ClientRole.TRAINER
    return ClientRole.SITS_OUT if client in seats.abstaining else ClientRole.MEMBER


def _view(worker: Worker) -> dict[str, Any] | None:
    """Return the position of the most advanced member; None without a member."""
    present = worker.present().values()
    positions = [
        (int(position.phase), position.span.view if position.span else None) for position in present
    ]
    if not positions:
        return None
    phase, view = max(
        positions, key=lambda position: (position[0], -1 if position[1] is None else position[1])
    )
    return {"phase": phase, "view": view}
