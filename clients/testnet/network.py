"""A test network, from nothing to running workers: each part is a separate process.

No process directs the rounds: there are a chain, a contract, a store, and workers with their keys
and the contract's address. All of them end with the context, and when this process is killed.
"""

from __future__ import annotations

import secrets
import shutil
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from clients.configuration.loading import checked
from clients.configuration.parsing import ALLOW_PREDICTABLE, own_code_settings, set_block_beacon
from clients.configuration.schema import Configuration
from clients.datasets.own_samples import simulated_keys
from clients.registration import PASSWORD_FILE, write_test_keystores
from clients.testnet import ChainKind, StoreKind
from clients.worker.status import WorkerFolder, WorkerState, read_status
from ledger.chain.contract.deploy import connect
from ledger.chain.contract.ledger import CommitteeLedger, Manifest, read_manifest
from ledger.chain.embedded.evm import TEST_KEYS
from ledger.chain.rpc.node import RpcReader, RpcSettings
from ledger.chain.rpc.wire import HttpTransport
from ledger.io.home import DISK, Home, run_lock
from ledger.io.processes import CommandError, CommandProcess, CommandRunner
from ledger.io.retry import Backoff, RetryPolicy
from ledger.protocol.encoding import checksum
from ledger.protocol.errors import ChainError, ConfigurationError
from ledger.protocol.signing import KeySigner
from ledger.protocol.types import ClientId

T = TypeVar("T")

ENTRY = "cmfl.commands.main:run"  # what every process but anvil runs: the command line
MODULES = (
    *("cmfl.commands.main", "torch", "pyarrow", "llvmlite.binding", "httpcore"),
    *("clients.worker.process", "clients.runs.open_run", "clients.training.lockstep.trainer"),
    *("clients.registration", "ledger.chain.rpc.rpc_chain", "ledger.chain.rpc.server"),
    *("cmfl.commands.worker", "cmfl.commands.deploy", "cmfl.commands.audit"),
)
"""What workers, deployments and audits import, done once for all of them."""

RUN = "federation"
ETHER_OF_A_CLIENT = "10"
KEY_VARIABLE = "CMFL_PRIVATE_KEY"
WORKER_SECONDS = 180.0
_BACKOFF = Backoff(0.05, 1)
ANVIL_TEST_KEY = bytes.fromhex("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80")
"""PUBLIC TEST KEY of the first account of every anvil, which prints it itself."""


@dataclass(frozen=True, slots=True)
class ChainPace:
    """Pace of a chain, with blocks in a window for each client, as all may train on one machine."""

    block_seconds: float
    blocks_of_a_client: float
    view_seconds: int
    deadline_blocks: int
    confirmations: int
    poll_seconds: float


PACES = {
    # On both, all that is sent meanwhile is in one block.
    ChainKind.EMBEDDED: ChainPace(0.5, 1.0, 8, 160, 2, 0.25),
    ChainKind.ANVIL: ChainPace(1.0, 0.0, 6, 60, 1, 0.25),
}
LEAST_WINDOW = 8


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Settings of a test network; by default with a chain's usual pace, and the anvil on PATH."""

    home: Path
    configuration: Configuration
    workers: int
    chain: ChainKind = ChainKind.EMBEDDED
    store: StoreKind = StoreKind.SERVED
    pace: ChainPace | None = None
    anvil: str | None = None
    serves: bool = False
    allow_predictable_seeds: bool = False

    @property
    def clocks(self) -> ChainPace:
        return PACES[self.chain] if self.pace is None else self.pace


def fitted_to_pace(values: dict[str, Any], pace: ChainPace) -> Configuration:
    """Return a configuration with a window, deadline and views that suit a chain, unless given."""
    set_block_beacon(values)
    protocol = values.get("protocol")
    if not isinstance(protocol, dict):
        return checked(values)  # which refuses it
    # Given alone, a window may be too long for the usual deadline, and not for the one set here.
    times = ("commit_blocks", "deadline_blocks")
    timeless = {name: value for name, value in protocol.items() if name not in times}
    active = checked(values | {"protocol": timeless}).parameters(dimension=1).active
    window = max(LEAST_WINDOW, int(pace.blocks_of_a_client * active))
    protocol.setdefault("commit_blocks", window)
    protocol.setdefault("deadline_blocks", protocol["commit_blocks"] + pace.deadline_blocks)
    protocol.setdefault("view_seconds", pace.view_seconds)
    return checked(values)


class ChainNode:
    """A node that can be stopped and restarted on the same port; its key is public, for tests."""

    def __init__(self, settings: NetworkSettings, processes: CommandRunner) -> None:
        self._settings, self._processes = settings, processes
        self._process: CommandProcess | None = None
        self._goes = False
        self.kind = settings.chain
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.key = TEST_KEYS[0] if self.kind is ChainKind.EMBEDDED else ANVIL_TEST_KEY
        self.file = settings.home / "chain.sqlite"

    @property
    def process(self) -> CommandProcess:
        if self._process is None:
            raise CommandError("the node has not been started")
        return self._process

    def start(self) -> int:
        """Start the node and return its chain id; until `go`, each transaction makes a block."""
        arguments: list[object]
        if self.kind is ChainKind.ANVIL:
            program = self._settings.anvil or shutil.which("anvil")
            if program is None:
                raise ConfigurationError("there is no anvil on PATH; install it, or set CMFL_ANVIL")
            arguments = [program, "--port", self.port, "--silent", "--hardfork", "prague"]
            arguments += ["--accounts", "1", "--balance", "1000000000"]
        else:
            arguments = ["chain", "serve", "--home", self._settings.home, "--port", self.port]
            if self._goes:
                arguments += ["--block-time", f"{self._settings.clocks.block_seconds:g}"]
        is_program = self.kind is ChainKind.ANVIL
        process = self._process = self._processes.start("chain", arguments, is_program=is_program)

        def chain_id() -> int | None:
            try:
                return int(str(self.ask("eth_chainId")), 16)
            except ChainError as error:
                if process.code() is not None:
                    raise CommandError(f"the node ended: {process.log_tail()}") from error
                return None

        return _polled(chain_id, f"the node at {self.url} does not answer")

    def hold(self) -> None:
        """Make no blocks until `go`: on anvil early commitments would use up the others' window."""
        if self.kind is ChainKind.ANVIL:
            self.ask("evm_setAutomine", False)

    def go(self) -> None:
        self._goes = True
        if self.kind is ChainKind.ANVIL:
            # As `--block-time` does: all that is sent meanwhile is in one block.
            self.ask("evm_setIntervalMining", max(1, round(self._settings.clocks.block_seconds)))
            return
        self.stop()
        self.start()

    def mine(self, blocks: int) -> None:
        self.ask("anvil_mine" if self.kind is ChainKind.ANVIL else "evm_mine", hex(blocks))

    def stop(self) -> None:
        """Terminate the node; the embedded chain's file is complete afterwards."""
        self.process.end(30)

    def ask(self, method: str, *parameters: object) -> object:
        return HttpTransport(self.url, 30, 1 << 20).ask(method, *parameters)


def _polled(look: Callable[[], T | None], failure: str) -> T:
    answer = RetryPolicy(_BACKOFF, deadline_seconds=WORKER_SECONDS).poll(look)
    if answer is None:
        raise CommandError(failure)
    return answer


def free_port() -> int:
    """Return a free port that no program is given which asks the system for any port."""
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@dataclass(frozen=True, slots=True)
class NetworkPaths:
    """A worker's paths to the other processes."""

    chain: str
    blobs: str
    mailbox: str


class WorkerSlot:
    """A slot, numbered from 0, for a worker that can be started, killed and restarted."""

    def __init__(
        self,
        number: int,
        clients: tuple[ClientId, ...],
        folder: Path,
        paths: NetworkPaths,
        arguments: Sequence[object],
        processes: CommandRunner,
    ) -> None:
        self.number, self.name = number, f"worker-{number:02d}"
        self.clients, self.folder, self.paths = clients, folder, paths
        self.process: CommandProcess | None = None
        self._processes, self._arguments = processes, arguments
        folder.mkdir(parents=True, exist_ok=True)

    def environment(self, folder: Path) -> dict[str, str]:  # noqa: ARG002 - for tests
        return {}

    def start(self) -> CommandProcess:
        self.process = self.start_with_folder(self.folder, self.name)
        return self.process

    def start_with_folder(self, folder: Path, name: str) -> CommandProcess:
        paths = self.paths
        words: list[object] = ["worker", "--rpc-url", paths.chain, "--blobs", paths.blobs]
        words += ["--mailbox", paths.mailbox, "--folder", folder, *self._arguments]
        return self._processes.start(name, words, environment=self.environment(folder))

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    def is_up(self) -> bool:
        return self.process is not None and self.process.code() is None

    def has_started(self) -> bool | None:
        return self.has_reported() or (None if self.is_up() else False)

    def has_reported(self) -> bool:
        if self.process is None:
            return False
        status = self.status()
        return status.get("pid") == self.process.pid and status.get("stand") != WorkerState.STARTING

    def status(self) -> dict[str, Any]:
        try:
            return read_status(WorkerFolder(self.folder).status)
        except ConfigurationError:
            return {}


class LocalNetwork:
    """A test network that runs until its context ends; without a server its store is a folder."""

    entry = ENTRY
    slot = WorkerSlot

    def __init__(
        self, settings: NetworkSettings, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self.settings, self._say = settings, say
        self.home, self.clients = Home(settings.home), settings.configuration.protocol.clients
        self._open = ExitStack()
        self.store: CommandProcess | None = None
        self._store_port = 0
        self.node: ChainNode
        self.processes: CommandRunner
        self.seats: list[WorkerSlot] = []
        self._paths: list[NetworkPaths] = []

    @property
    def manifest(self) -> Manifest:
        return read_manifest(self.home.run(RUN).manifest)

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def start_workers(self) -> None:
        self.node.hold()
        for seat in self.seats:
            seat.start()
        polling = RetryPolicy(_BACKOFF, deadline_seconds=WORKER_SECONDS)
        for seat in self.seats:
            if not polling.poll(seat.has_started):
                tail = "" if seat.process is None else seat.process.log_tail()
                raise CommandError(f"{seat.name} does not start: {tail}")
        self._say(f"{len(self.seats)} workers host {self.clients} clients")
        self.node.go()

    def reader(self) -> RpcReader:
        settings = RpcSettings(poll_seconds=0.1, request_timeout_seconds=20)
        return RpcReader(self.node.url, chain_id=self.manifest.chain_id, settings=settings)

    def ledger(self, reader: RpcReader) -> CommitteeLedger:
        return connect(reader, self.manifest)

    def restart_store(self) -> None:
        if self.store is not None and self.store.code() is None:
            return
        arguments = ["blobs", "serve", "--home", self.settings.home, "--port", self._store_port]
        arguments += ["--run", RUN, *self._on_node(self.manifest.chain_id)]
        # A worker signs for the URL that it knows, which may lead through a relay.
        for url in dict.fromkeys([self._store_url, *(path.blobs for path in self._paths)]):
            arguments += ["--public-url", url]
        self.store = self.processes.start("store", arguments)
        wait_for_port(self._store_port, self.store)

    @property
    def _store_url(self) -> str:
        return f"http://127.0.0.1:{self._store_port}"

    def _on_node(self, chain_id: int) -> list[object]:
        return ["--rpc-url", self.node.url, "--chain-id", chain_id]

    def _begin(self) -> None:
        settings = self.settings
        settings.home.mkdir(parents=True, exist_ok=True)
        logs = settings.home / "logs"
        self.processes = self._open.enter_context(CommandRunner(self.entry, logs, MODULES))
        self.node = ChainNode(settings, self.processes)
        # The chain closes its file first; everything else is killed after it.
        self._open.enter_context(suppress(CommandError))
        self._open.callback(self.node.stop)
        self._say(f"{settings.chain} chain at {self.node.url}")
        chain_id = self.node.start()
        self._deploy(chain_id)
        address = self.manifest.address
        self._open.enter_context(run_lock(self.home.run(RUN)))
        # Workers act on what is final, and no block comes by itself before they are there.
        self.node.mine(settings.clocks.confirmations + 1)
        self._say(f"contract {address} on chain {chain_id}")
        if settings.store is StoreKind.SERVED:
            self._store_port = free_port()
        self._paths = [self.path() for _ in range(settings.workers)]
        if settings.store is StoreKind.SERVED:
            self.restart_store()
            self._say(f"blobs and mail at {self._store_url}")
        for number, paths in enumerate(self._paths):
            # The clients are dealt out in turn.
            hosted = tuple(map(ClientId, range(number, self.clients, settings.workers)))
            words = worker_arguments(settings, chain_id, address, hosted)
            folder = settings.home / "workers" / f"{number:02d}"
            self.seats.append(self.slot(number, hosted, folder, paths, words, self.processes))
        if settings.serves:
            port = free_port()
            arguments = ["serve", "--home", settings.home, "--port", port]
            arguments += [*self._on_node(chain_id), "--mailbox", self._mailbox]
            self.processes.start("service", arguments)
            self._say(f"service and dashboard at http://127.0.0.1:{port}/dashboard/")

    def _deploy(self, chain_id: int) -> None:
        settings, on_node = self.settings, self._on_node(chain_id)
        file = settings.home / "federation.toml"
        DISK.write_whole(file, settings.configuration.to_toml().encode())
        keys = simulated_keys(settings.configuration.seed, self.clients)
        write_test_keystores(settings.home / "keys", keys)
        payer = {KEY_VARIABLE: self.node.key.hex()}
        registered = [checksum(KeySigner(key).address) for key in keys]
        arguments = ["chain", "fund", *registered, "--amount", ETHER_OF_A_CLIENT, *on_node]
        self.processes.run("fund", arguments, environment=payer)
        self._say(f"{len(registered)} clients have {ETHER_OF_A_CLIENT} ether each for gas")
        # After the funds, each of which is a block on some chains: the first window opens here.
        arguments = ["deploy", "--home", settings.home, "--run", RUN, "--config", file, *on_node]
        self.processes.run("deploy", arguments, environment=payer)

    @property
    def _mailbox(self) -> str:
        return self._store_url if self._store_port else str(self.settings.home / "mailbox")

    def path(self) -> NetworkPaths:
        """Return the paths of the next worker; a test may lead them through relays."""
        blobs = self._store_url if self._store_port else str(self.home.blobs)
        return NetworkPaths(self.node.url, blobs, self._mailbox)


def worker_arguments(
    settings: NetworkSettings, chain_id: int, contract: str, clients: Iterable[ClientId]
) -> list[object]:
    """Return the arguments of a worker of these clients, except for its paths and folder."""
    configuration, pace, keys = settings.configuration, settings.clocks, settings.home / "keys"
    words: list[object] = ["--chain-id", chain_id, "--contract", contract]
    for client in clients:
        words += ["--keystore", keys / f"client-{client:03d}.json"]
    words += ["--password-file", keys / PASSWORD_FILE]
    words += ["--confirmations", pace.confirmations, "--poll", f"{pace.poll_seconds:g}"]
    if settings.allow_predictable_seeds:
        words.append(ALLOW_PREDICTABLE)
    for setting in own_code_settings(configuration):
        words += ["--set", setting]
    if configuration.machine.isa is not None:
        words += ["--set", f"machine.isa={configuration.machine.isa}"]
    return words if configuration.data.path is None else [*words, "--data", configuration.data.path]


def wait_for_port(port: int, process: CommandProcess) -> None:
    """Return once a process listens on a port of this machine."""

    def is_listening() -> bool | None:
        # First: another process may listen, which is why this one has ended.
        if process.code() is not None:
            raise CommandError(f"{process.name} ended: {process.log_tail()}")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0 or None

    _polled(is_listening, f"{process.name} does not listen on port {port}")
