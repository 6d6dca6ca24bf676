"""A test network, from nothing to running workers: each part is a separate process.

No process directs the rounds: there are a chain, a contract, a store, and workers that know their
own keys and the contract's address. Everything ends with the context, and also when this process is
killed.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Self

from clients.configuration.run_configuration import own_code_settings
from clients.onboarding.keystores import PASSWORD_FILE, write_test_keystores
from clients.random_streams import simulated_keys, simulated_signers
from clients.testnet.chain_node import ChainNode, free_port
from clients.testnet.kinds import StoreKind
from clients.testnet.relay import Relays
from clients.testnet.worker_slot import NetworkPaths, NetworkTarget, WorkerSlot
from ledger.chain.addresses import checksum
from ledger.chain.contract.deployment import connect
from ledger.chain.contract.manifest import read_manifest
from ledger.chain.rpc.rpc_reader import RpcReader, RpcSettings
from ledger.io.folder_lock import run_lock
from ledger.io.forked_commands import CommandError, CommandRunner
from ledger.io.home import DISK, Home
from ledger.io.retry import Backoff, RetryPolicy
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from clients.testnet.network_settings import NetworkSettings
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.chain.contract.manifest import Manifest
    from ledger.io.forked_commands import CommandProcess

ENTRY = "cmfl.commands.network_process:run"
"""What every process but anvil runs: the command line, whose worker a test can make misbehave."""

MODULES = (
    *("torch", "pyarrow", "llvmlite.binding", "httpcore"),
    *("cmfl.commands.application", "clients.worker.process.loop", "clients.worker.process.setup"),
    *("clients.simulation", "clients.runs.preparation", "clients.training.lockstep.trainer"),
    *("clients.onboarding.keystores", "ledger.audit.engine", "ledger.distances.fast"),
    *("ledger.chain.rpc.rpc_chain", "ledger.chain.rpc.server.http_server"),
    *("cmfl.commands.worker", "cmfl.commands.deploy", "cmfl.commands.audit"),
)
"""What workers, deployments and audits import, done once for all of them."""

RUN = "federation"
ETHER_OF_A_CLIENT = "10"
KEY_VARIABLE = "CMFL_PRIVATE_KEY"
WORKER_SECONDS = 180.0
_BACKOFF = Backoff(0.05, 1)


class LocalNetwork:
    """A test network that runs until its context ends.

    Attributes:
        settings: of the network.
        node: its chain.
        seats: slots of its workers.
        relays: their network paths.
        processes: starts all processes.
        store: server of blobs and mail; None for folders.
        service: the audit service; None if there is none.
        service_url: of the audit service.
    """

    def __init__(
        self,
        settings: NetworkSettings,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Prepare a network; `say` is called with a sentence about each step."""
        self.settings = settings
        self._say = say
        self._open = ExitStack()
        self.store: CommandProcess | None = None
        self.service: CommandProcess | None = None
        self.service_url = ""
        self._store_port = 0
        self.node: ChainNode
        self.relays: Relays
        self.processes: CommandRunner
        self.seats: list[WorkerSlot] = []
        self._paths: list[NetworkPaths] = []

    @property
    def home(self) -> Home:
        """The folder of chain, blobs and the run."""
        return Home(self.settings.home)

    @property
    def clients(self) -> int:
        """K."""
        return self.settings.configuration.protocol.clients

    @property
    def manifest(self) -> Manifest:
        """The manifest of the deployment."""
        return read_manifest(self.home.run(RUN).manifest)

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def start_workers(self, faults: Mapping[int, str] | None = None) -> None:
        """Start the worker of each slot, some with faults, and then the blocks.

        Raises:
            CommandError: one of them does not start.
        """
        self.node.hold()
        for seat in self.seats:
            seat.start((faults or {}).get(seat.number))
        polling = RetryPolicy(_BACKOFF, deadline_seconds=WORKER_SECONDS)
        for seat in self.seats:
            if not polling.poll(partial(_has_started, seat)):
                tail = "" if seat.process is None else seat.process.log_tail()
                raise CommandError(f"{seat.name} does not come up: {tail}")
        self._say(f"{len(self.seats)} workers host {self.clients} clients")
        self.node.go()

    def reader(self) -> RpcReader:
        """Return a reader of the chain that does not use the workers' relays."""
        settings = RpcSettings(poll_seconds=0.1, request_timeout_seconds=20)
        return RpcReader(self.node.url, chain_id=self.manifest.chain_id, settings=settings)

    def ledger(self, reader: RpcReader) -> CommitteeLedger:
        """Return the contract on a chain."""
        return connect(reader, self.manifest)

    def restart_store(self) -> None:
        """Start the server of blobs and mail, unless it is running.

        Raises:
            CommandError: it does not start.
        """
        if self.store is not None and self.store.code() is None:
            return
        arguments = ["blobs", "serve", "--home", self.settings.home, "--port", self._store_port]
        arguments += ["--run", RUN, "--rpc-url", self.node.url]
        arguments += ["--chain-id", self.manifest.chain_id]
        # A worker signs for the place that it knows, which is its own way to the store.
        for url in (f"http://127.0.0.1:{self._store_port}", *(path.blobs for path in self._paths)):
            arguments += ["--public-url", url]
        self.store = self.processes.start("store", arguments)
        wait_for_port(self._store_port, self.store)

    def _begin(self) -> None:
        settings = self.settings
        settings.home.mkdir(parents=True, exist_ok=True)
        logs = settings.home / "logs"
        self.processes = self._open.enter_context(CommandRunner(ENTRY, logs, MODULES))
        self.relays = self._open.enter_context(Relays())
        self.node = ChainNode(settings, self.processes)
        self._open.callback(self._end_in_order)
        self._say(f"{settings.chain} chain at {self.node.url}")
        chain_id = self.node.start()
        file = settings.home / "federation.toml"
        DISK.write_whole(file, settings.configuration.to_toml().encode())
        keys = simulated_keys(settings.configuration.seed, self.clients)
        write_test_keystores(settings.home / "keys", keys)
        self._pay(chain_id)
        # After the funds, each of which is a block on some chains: the first window opens here.
        on_node = ["--rpc-url", self.node.url, "--chain-id", chain_id]
        arguments = ["deploy", "--home", settings.home, "--run", RUN, "--config", file]
        self.processes.run("deploy", [*arguments, *on_node], environment=self._payer())
        address = self.manifest.address
        self._open.enter_context(run_lock(self.home.run(RUN)))
        # Workers act on what is final, and no block comes by itself before they are there.
        self.node.mine(settings.clocks.confirmations + 1)
        self._say(f"contract {address} on chain {chain_id}")
        if settings.store is StoreKind.SERVED:
            self._store_port = free_port()
        self._paths = [self._path() for _ in range(settings.workers)]
        if settings.store is StoreKind.SERVED:
            self.restart_store()
            self._say(f"blobs and mail at http://127.0.0.1:{self._store_port}")
        self._settle(chain_id, address)
        if settings.serves:
            self._serve(chain_id)

    def _end_in_order(self) -> None:
        """Let the chain close its file; everything else is killed after it."""
        with suppress(CommandError):
            self.node.stop()

    def _pay(self, chain_id: int) -> None:
        """Fund every client for its transactions."""
        registered = self._addresses()
        arguments = ["chain", "fund", *registered, "--amount", ETHER_OF_A_CLIENT]
        on_node = ["--rpc-url", self.node.url, "--chain-id", chain_id]
        self.processes.run("fund", [*arguments, *on_node], environment=self._payer())
        self._say(f"{len(registered)} clients have {ETHER_OF_A_CLIENT} ether each for gas")

    def _settle(self, chain_id: int, address: str) -> None:
        settings, pace = self.settings, self.settings.clocks
        cap = settings.configuration.machine.isa
        cap_settings = () if cap is None else (f"machine.isa={cap}",)
        meeting = NetworkTarget(
            chain_id=chain_id,
            contract=address,
            keys=settings.home / "keys",
            password_file=settings.home / "keys" / PASSWORD_FILE,
            confirmations=pace.confirmations,
            poll_seconds=pace.poll_seconds,
            data=settings.configuration.data.path,
            allow_predictable_seeds=settings.allow_predictable_seeds,
            settings=(*own_code_settings(settings.configuration), *cap_settings),
        )
        hosted = clients_by_worker(settings.configuration.protocol.clients, settings.workers)
        for number, clients in enumerate(hosted):
            folder = settings.home / "workers" / f"{number:02d}"
            seat = WorkerSlot(number, clients, folder, self._paths[number], self.processes)
            seat.settle(meeting, settings.memory_bytes)
            self.seats.append(seat)

    def _path(self) -> NetworkPaths:
        chain = self.relays.relay(self.node.port)
        if not self._store_port:
            mailbox = self.settings.home / "mailbox"
            return NetworkPaths(chain, None, str(self.home.blobs), str(mailbox))
        store = self.relays.relay(self._store_port)
        return NetworkPaths(chain, store, store.url, store.url)

    def _serve(self, chain_id: int) -> None:
        port = free_port()
        arguments = ["serve", "--home", self.settings.home, "--port", port]
        arguments += ["--rpc-url", self.node.url, "--chain-id", chain_id]
        store = f"http://127.0.0.1:{self._store_port}" if self._store_port else None
        arguments += ["--mailbox", store or self.settings.home / "mailbox"]
        self.service = self.processes.start("service", arguments)
        self.service_url = f"http://127.0.0.1:{port}"
        self._say(f"service and dashboard at {self.service_url}/dashboard/")

    def _payer(self) -> dict[str, str]:
        return {KEY_VARIABLE: self.node.key.hex()}

    def _addresses(self) -> list[str]:
        """Return the account of each client."""
        signers = simulated_signers(self.settings.configuration.seed, self.clients)
        return [checksum(signer.address) for signer in signers]


def _has_started(slot: WorkerSlot) -> bool | None:
    """Return whether a worker has reported; False if it has ended, None while it starts."""
    if slot.has_reported():
        return True
    return None if slot.is_up() else False


def clients_by_worker(clients: int, workers: int) -> list[tuple[ClientId, ...]]:
    """Return the clients of each worker, ascending, dealt out in turn."""
    return [tuple(ClientId(c) for c in range(first, clients, workers)) for first in range(workers)]


def wait_for_port(port: int, process: CommandProcess, seconds: float = WORKER_SECONDS) -> None:
    """Return once a process listens on a port of this machine.

    Raises:
        CommandError: it has ended, or takes longer.
    """

    def is_listening() -> bool | None:
        # First: another process may listen, which is why this one has ended.
        if process.code() is not None:
            raise CommandError(f"{process.name} ended: {process.log_tail()}")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0 or None

    if RetryPolicy(_BACKOFF, deadline_seconds=seconds).poll(is_listening) is None:
        raise CommandError(f"{process.name} does not listen on port {port}")
