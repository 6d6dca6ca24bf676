"""A slot for one worker of a test network: its clients, folder, relays and process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clients.configuration.parsing import ALLOW_PREDICTABLE
from clients.testnet.worker_faults import FAULT_VARIABLE, FROM_FILE, faults_from_file
from clients.worker.process.worker_folder import WorkerFolder
from clients.worker.process.worker_status import WorkerState, read_status
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from clients.testnet.relay import Relay
    from ledger.io.forked_commands import CommandProcess, CommandRunner
    from ledger.protocol.types import ClientId

FAULT_FILE = "fault"
"""In a worker's folder, read by a worker whose faults change."""


@dataclass(frozen=True, slots=True)
class NetworkTarget:
    """Location of a network's run, the same for all workers.

    Attributes:
        chain_id: of the chain.
        contract: its address.
        keys: folder of the clients' keystores, `client-000.json` and so on.
        password_file: of all of them.
        confirmations: of a block before workers act on it.
        poll_seconds: between a worker's polls.
        data: location of the data; None for data without files.
        allow_predictable_seeds: whether workers accept a run whose seeds can be predicted.
        settings: `section.key=value` of the machine: where the run's own code is.
    """

    chain_id: int
    contract: str
    keys: Path
    password_file: Path
    confirmations: int
    poll_seconds: float
    data: str | None
    allow_predictable_seeds: bool = False
    settings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NetworkPaths:
    """A worker's paths to the other processes.

    Attributes:
        chain: relay to the node.
        store: relay to the server of blobs and mail; None for folders.
        blobs: location of the blobs.
        mailbox: location of the mail.
    """

    chain: Relay
    store: Relay | None
    blobs: str
    mailbox: str

    @property
    def relays(self) -> tuple[Relay, ...]:
        """All relays."""
        return (self.chain,) if self.store is None else (self.chain, self.store)


class WorkerSlot:
    """A slot in which a worker can be started, killed and restarted.

    Attributes:
        number: from 0.
        clients: that it hosts.
        folder: of its journal, updates and status.
        paths: to the other processes.
        process: the newest one; None before the first start.
    """

    def __init__(
        self,
        number: int,
        clients: tuple[ClientId, ...],
        folder: Path,
        paths: NetworkPaths,
        processes: CommandRunner,
    ) -> None:
        """Prepare the slot; nothing runs yet."""
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
        """Name of its log files."""
        return f"worker-{self.number:02d}"

    def settle(self, meeting: NetworkTarget, memory_bytes: int | None = None) -> None:
        """Set the location of the run and the worker's memory limit."""
        self._meeting, self._memory_bytes = meeting, memory_bytes
        self.folder.mkdir(parents=True, exist_ok=True)

    def start(self, fault: str | None = None) -> CommandProcess:
        """Start a worker, possibly with a fault."""
        self.process = self.start_with_folder(self.folder, self.name, fault)
        return self.process

    def start_with_folder(
        self, folder: Path, name: str, fault: str | None = None
    ) -> CommandProcess:
        """Start a worker with this slot's keys and another folder."""
        assert self._meeting is not None, "the place knows where the federation meets"
        value = faults_from_file(folder / FAULT_FILE) if fault == FROM_FILE else fault
        environment = {} if value is None else {FAULT_VARIABLE: value}
        return self._processes.start(
            name,
            _arguments(self._meeting, self.paths, self.clients, folder),
            environment=environment,
            memory_bytes=self._memory_bytes,
        )

    def kill(self) -> None:
        """Kill the worker."""
        if self.process is not None:
            self.process.kill()

    def is_up(self) -> bool:
        """Return whether its process is alive."""
        return self.process is not None and self.process.code() is None

    def has_reported(self) -> bool:
        """Return whether the current process has started, by its status file."""
        if self.process is None:
            return False
        status = self.status()
        return status.get("pid") == self.process.pid and status.get("stand") != WorkerState.STARTING

    def status(self) -> dict[str, Any]:
        """Return the worker's status; empty if it has written none."""
        try:
            return read_status(self._own.status)
        except ConfigurationError:
            return {}


def _arguments(
    meeting: NetworkTarget, paths: NetworkPaths, clients: tuple[ClientId, ...], folder: Path
) -> list[object]:
    words: list[object] = ["worker", "--rpc-url", paths.chain.url]
    words += ["--chain-id", meeting.chain_id, "--contract", meeting.contract]
    words += ["--blobs", paths.blobs, "--mailbox", paths.mailbox]
    for client in clients:
        words += ["--keystore", meeting.keys / f"client-{client:03d}.json"]
    words += ["--password-file", meeting.password_file, "--folder", folder]
    words += ["--confirmations", meeting.confirmations, "--poll", f"{meeting.poll_seconds:g}"]
    if meeting.allow_predictable_seeds:
        words.append(ALLOW_PREDICTABLE)
    for setting in meeting.settings:
        words += ["--set", setting]
    return words if meeting.data is None else [*words, "--data", meeting.data]
