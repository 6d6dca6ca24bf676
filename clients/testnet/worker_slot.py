"""One worker's place in a federation: its clients, its folder, its paths, and its process."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clients.onboarding.seed_policy import ALLOW_PREDICTABLE
from clients.testnet.worker_faults import FAULT_VARIABLE, FROM_FILE, faults_from_file
from clients.worker.process.worker_folder import WorkerFolder
from clients.worker.process.worker_status import WorkerState, read_status
from ledger.io.home import DISK, WRITING
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from clients.testnet.relay import Relay
    from ledger.io.commands import CommandProcess, CommandRunner
    from ledger.protocol.types import ClientId

_FILLER = ".filler"  # what fills a worker's disk in trials
_FAULT_FILE = "fault"  # what a worker that may be told to misbehave is told


@dataclass(frozen=True, slots=True)
class NetworkTarget:
    """Where a federation meets, as every worker is told.

    Attributes:
        chain_id: of the chain.
        contract: its address.
        keys: folder of the clients' keystores, `client-000.json` and so on.
        password_file: of all of them.
        confirmations: how deep a block has to be before anybody acts on it.
        poll_seconds: how often a worker looks.
        data: where the data lie on this machine; None for data that need no files.
        allow_predictable_seeds: whether workers accept a run whose seeds can be predicted.
    """

    chain_id: int
    contract: str
    keys: Path
    password_file: Path
    confirmations: int
    poll_seconds: float
    data: str | None
    allow_predictable_seeds: bool = False


@dataclass(frozen=True, slots=True)
class NetworkPaths:
    """How a worker reaches the others.

    Attributes:
        chain: relay to the node.
        store: relay to the server of blobs and mail; None where they are folders.
        blobs: place of the blobs.
        mailbox: place of the mail.
    """

    chain: Relay
    store: Relay | None
    blobs: str
    mailbox: str

    @property
    def relays(self) -> tuple[Relay, ...]:
        """All of them."""
        return (self.chain,) if self.store is None else (self.chain, self.store)


class WorkerSlot:
    """A place that a worker process can be begun in, killed, and begun in again.

    Attributes:
        number: from 0.
        clients: whom it hosts.
        folder: its journal, own payloads and status.
        paths: how it reaches the others.
        process: the newest process in it, None before the first.
    """

    def __init__(
        self,
        number: int,
        clients: tuple[ClientId, ...],
        folder: Path,
        paths: NetworkPaths,
        processes: CommandRunner,
    ) -> None:
        """Take the place; nothing runs yet.

        Args:
            number: from 0.
            clients: whom it hosts.
            folder: of the worker's own files.
            paths: how it reaches the others.
            processes: begins the worker.
        """
        self.number = number
        self.clients = clients
        self.folder = folder
        self._own = WorkerFolder(folder)
        self.paths = paths
        self.process: CommandProcess | None = None
        self._processes = processes
        self._meeting: NetworkTarget | None = None
        self._memory_bytes: int | None = None

    @property
    def name(self) -> str:
        """What it is called in logs."""
        return f"worker-{self.number:02d}"

    @property
    def own_updates(self) -> Path:
        """Where its worker keeps what it has trained."""
        return self._own.payloads

    def settle(self, meeting: NetworkTarget, memory_bytes: int | None = None) -> None:
        """Take down where the federation meets.

        Args:
            meeting: the same for all.
            memory_bytes: how much private memory the worker may have.
        """
        self._meeting, self._memory_bytes = meeting, memory_bytes
        self.folder.mkdir(parents=True, exist_ok=True)

    def start(self, fault: str | None = None) -> CommandProcess:
        """Begin a worker in this place.

        Args:
            fault: how it misbehaves; None for an honest one.
        """
        self.process = self.start_with_folder(self.folder, self.name, fault)
        return self.process

    def start_with_folder(
        self, folder: Path, name: str, fault: str | None = None
    ) -> CommandProcess:
        """Begin a worker with this place's keys and another folder.

        Args:
            folder: of its own files.
            name: of its log.
            fault: how it misbehaves; None for an honest one.
        """
        assert self._meeting is not None, "the place knows where the federation meets"
        value = faults_from_file(folder / _FAULT_FILE) if fault == FROM_FILE else fault
        environment = {} if value is None else {FAULT_VARIABLE: value}
        return self._processes.start(
            name,
            _arguments(self._meeting, self.paths, self.clients, folder),
            environment=environment,
            memory_bytes=self._memory_bytes,
        )

    def tell(self, fault: str, round_number: int) -> None:
        """Have a worker misbehave in one round, if it was begun as one that may be told to.

        Args:
            fault: how.
            round_number: t, which it has not taken up yet.
        """
        told = f"{round_number} {fault}\n".encode()
        DISK.write_whole(self.folder / _FAULT_FILE, told, durable=False)

    def clear_fault(self) -> None:
        """Have it behave from the next round on."""
        (self.folder / _FAULT_FILE).unlink(missing_ok=True)

    def kill(self) -> None:
        """End the worker outright."""
        if self.process is not None:
            self.process.kill()

    def is_up(self) -> bool:
        """Say whether its process is alive."""
        return self.process is not None and self.process.code() is None

    def has_reported(self) -> bool:
        """Say whether the process that is in it now has begun, by what it says of itself."""
        if self.process is None:
            return False
        status = self.status()
        return status.get("pid") == self.process.pid and status.get("stand") != WorkerState.STARTING

    def status(self) -> dict[str, Any]:
        """Return what the worker says of itself, empty where it has said nothing yet."""
        try:
            return read_status(self._own.status)
        except ConfigurationError:
            return {}

    def backup(self, target: Path) -> None:
        """Copy its own files, as a backup that runs every night would; it may be running.

        Args:
            target: folder of the copy, which is replaced.
        """
        shutil.rmtree(target, ignore_errors=True)
        left_out = shutil.ignore_patterns(f"{WRITING}*", "*.sqlite*", _FILLER)
        shutil.copytree(self.folder, target, ignore=left_out, copy_function=_copy)
        for path in self.folder.glob("*.sqlite"):
            # A journal that is copied while it is written to may be no journal.
            copied = sqlite3.connect(target / path.name)
            with closing(sqlite3.connect(path)) as base, closing(copied):
                base.backup(copied)

    def restore(self, backup: Path) -> None:
        """Put a backup in the place of its own files; its worker must not be running.

        Args:
            backup: folder of the copy.
        """
        # Not the folder itself, which may be a disk of its own.
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        shutil.copytree(backup, self.folder, dirs_exist_ok=True)


def _arguments(
    meeting: NetworkTarget, paths: NetworkPaths, clients: tuple[ClientId, ...], folder: Path
) -> list[object]:
    arguments: list[object] = ["worker", "--rpc-url", paths.chain.url]
    arguments += ["--chain-id", meeting.chain_id, "--contract", meeting.contract]
    arguments += ["--blobs", paths.blobs, "--mailbox", paths.mailbox]
    for client in clients:
        arguments += ["--keystore", meeting.keys / f"client-{client:03d}.json"]
    arguments += ["--password-file", meeting.password_file, "--folder", folder]
    arguments += ["--confirmations", meeting.confirmations, "--poll", f"{meeting.poll_seconds:g}"]
    if meeting.allow_predictable_seeds:
        arguments.append(ALLOW_PREDICTABLE)
    return arguments if meeting.data is None else [*arguments, "--data", meeting.data]


def _copy(source: str, target: str) -> None:
    with suppress(FileNotFoundError):  # the worker has removed it meanwhile
        shutil.copy2(source, target)
