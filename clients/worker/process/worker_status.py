"""What a worker says of itself: one small file, written whole whenever something has changed."""

from __future__ import annotations

import json
import os
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from ledger.chain.addresses import checksum
from ledger.io.home import DISK, Disk, read_file
from ledger.io.json import parse_json
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from clients.worker.process.counters import WorkerCounters
    from clients.worker.round_participants import RoundParticipants
    from clients.worker.worker import Worker
    from ledger.actors.view import ChainView
    from ledger.protocol.types import ClientId

FORMAT = 1
MAX_STATUS_BYTES = 4 << 20


class WorkerState(StrEnum):
    """What a worker is at."""

    STARTING = "starting"
    RUNNING = "running"
    LEAVING = "leaving"
    ENDED = "ended"


class ClientRole(StrEnum):
    """What a client is in the open round."""

    TRAINER = "trainer"
    MEMBER = "member"
    SITS_OUT = "sits-out"
    IDLE = "idle"
    BANNED = "banned"


def worker_status(
    worker: Worker, counts: WorkerCounters, stand: WorkerState, account: str
) -> dict[str, Any]:
    """Return what a worker says of itself after a step.

    Args:
        worker: after the step.
        counts: of its doings.
        stand: what it is at.
        account: the one that pays, EIP-55.
    """
    newest, final, chain = worker.newest_block, worker.final_state, worker.chain
    measured = worker.measuring.newest
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
        if measured is None
        else {"round": measured.round, "accuracy": measured.accuracy, "loss": measured.loss},
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


class StatusFile:
    """Where a worker's status is written.

    A status is worth nothing after a power cut, so that it is written whole, and not durably.
    """

    def __init__(self, path: Path, *, disk: Disk = DISK) -> None:
        self._path = path
        self._disk = disk
        self._written: dict[str, Any] | None = None

    def write(self, status: dict[str, Any], at: float) -> None:
        """Write what has changed; a disk that takes nothing keeps no worker from its work.

        Args:
            status: what it says.
            at: Unix seconds.
        """
        if status == self._written:
            return
        data = json.dumps({**status, "at": at}, indent=1).encode() + b"\n"
        try:
            self._disk.write_whole(self._path, data, durable=False)
        except OSError:
            return
        self._written = status


def read_status(path: Path) -> dict[str, Any]:
    """Return what a worker has said of itself last.

    Args:
        path: of its status file.

    Raises:
        ConfigurationError: there is none, or it is no status.
    """
    try:
        found = parse_json(read_file(path, MAX_STATUS_BYTES))
    except FileNotFoundError as error:
        raise ConfigurationError(f"{path}: no worker has ever run on this folder") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ConfigurationError(f"{path}: no status of this version's workers")
    return found


def _roles(worker: Worker, chain: ChainView | None) -> dict[str, dict[str, Any]]:
    """Return what each client is in the open round, by its index."""
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
    """Return where the furthest of its members is; None without one on the committee."""
    present = worker.present().values()
    where = [(int(one.phase), one.span.view if one.span else None) for one in present]
    if not where:
        return None
    phase, view = max(where, key=lambda one: (one[0], -1 if one[1] is None else one[1]))
    return {"phase": phase, "view": view}
