"""A run on a served chain, its owners' workers, and a carrier between them, step by step.

Workers, chain server and carrier are the product's. Time is the test's: it goes on by a second with
each exchange, and jumps to what is due where nothing is new.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from clients.configuration.loading import load
from clients.random_streams import simulated_keys
from clients.runs.open_run import open_memory_run
from clients.runs.preparation import prepared
from clients.worker.carried.node import answer_carrier
from clients.worker.chain_clock import Moment
from clients.worker.process.setup import (
    WorkerOptions,
    WorkerTarget,
    find_deployed_run,
    open_worker,
)
from clients.worker.process.worker_folder import WorkerFolder
from ledger.chain.addresses import checksum
from ledger.chain.contract.committee_ledger import CommitteeLedger
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.genesis import TEST_KEYS
from ledger.chain.rpc.rpc_chain import RpcChain
from ledger.chain.rpc.rpc_reader import RpcSettings
from ledger.chain.rpc.server.http_server import RpcServer
from ledger.io.home import Home
from ledger.protocol.errors import BlobMissingError
from ledger.protocol.ledger_state import LedgerStage
from ledger.protocol.signing import KeySigner
from ledger.storage.blobs import FolderBlobs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from clients.configuration.schema import Configuration
    from clients.worker.worker import Worker

CHAIN_ID = 4711
OWNERS = 3
SETTINGS = (
    "protocol.beacon=none",
    "protocol.view_seconds=600",
    "protocol.commit_blocks=5000",
    "protocol.deadline_blocks=10000",
    "training.path=plain",
)
MOST_EXCHANGES = 400
PATIENCE = 3
"""Exchanges without anything new before time jumps."""


class Clock:
    """The time of chain and workers, in Unix seconds."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0


class Owner:
    """One owner: a worker with keys of its own, and the folder that a node of the carrier serves.

    Attributes:
        carried: the folder.
    """

    def __init__(self, run: CarriedRun, number: int, url: str) -> None:
        share = len(run.keys) // OWNERS
        own = run.keys[number * share : (number + 1) * share]
        self.carried = run.folder / f"carried-{number}"
        self.carried.mkdir()
        self._signers = [KeySigner(key) for key in own]
        self._folder = WorkerFolder(run.folder / f"worker-{number}")
        place = f"carried://{self.carried}"
        self._target = WorkerTarget(run.address, place, place, confirmations=0)
        settings = RpcSettings(poll_seconds=0.02)
        self._chain = run.stack.enter_context(
            RpcChain(url, own[0], chain_id=CHAIN_ID, settings=settings)
        )
        self._run = run
        self._worker: Worker | None = None

    def answer(self, message: bytes) -> bytes:
        """Answer the carrier, as a ClientApp does."""
        return answer_carrier(message, self.carried)

    def step(self, round_number: int) -> tuple[bool, float | None]:
        """Do all that is due in a round; return whether that had an effect, and when more is."""
        has_effect = False
        worker = self._opened()
        if worker is None:
            return False, None
        while self._run.ledger.state().round == round_number:
            later = worker.step(Moment(self._run.clock.now, self._run.clock.now))
            if worker._training._running is not None or worker._sending._running is not None:
                time.sleep(0.01)
            elif later != 0.0:
                return has_effect, later
            has_effect = True
        return True, None

    def _opened(self) -> Worker | None:
        """Return the worker, once the document of its run has been brought."""
        if self._worker is None:
            try:
                run = find_deployed_run(self._chain, self._target)
            except BlobMissingError:
                return None
            options = WorkerOptions(allow_predictable_seeds=True)
            self._run.stack.enter_context(self._folder.held())
            opened = open_worker(run, self._target, self._signers, self._folder, options)
            self._worker = self._run.stack.enter_context(opened).worker
        return self._worker


class CarriedRun:
    """A deployed run with its owners.

    Attributes:
        folder: of everything.
        home: of the chain, and of the carrier.
        clock: of all.
        keys: of the clients; PUBLIC TEST KEYS.
        address: of the contract.
        ledger: the contract, read without the node.
        owners: each with a third of the clients.
    """

    def __init__(self, folder: Path, seed: int, rounds: int = 2) -> None:
        self.folder = folder
        self.home = Home(folder / "home")
        self.home.path.mkdir(parents=True)
        self.clock = Clock()
        self.stack = ExitStack()
        self._configuration = configuration(seed, rounds)
        self.keys = simulated_keys(seed, self._configuration.protocol.clients)
        self.address = ""
        self.ledger: CommitteeLedger
        self.owners: list[Owner] = []

    def __enter__(self) -> Self:
        chain = self.stack.enter_context(
            EmbeddedChain.create(
                self.home.chain,
                chain_id=CHAIN_ID,
                clock=lambda: self.clock.now,
                synchronous="NORMAL",  # no power is cut
            )
        )
        blobs = FolderBlobs(self.home.blobs)
        with prepared(self.home.path, "run", self._configuration, chain, blobs) as deployed:
            _, _, manifest = deployed
        self.address = manifest.address
        self.ledger = CommitteeLedger(chain, manifest.address)
        server = self.stack.enter_context(RpcServer(chain))
        with RpcChain(server.url, TEST_KEYS[0], chain_id=CHAIN_ID) as bank:
            for key in self.keys:
                bank.send(checksum(KeySigner(key).address), b"", 30_000, value=10**18)
        self.owners = [Owner(self, number, server.url) for number in range(OWNERS)]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stack.close()

    def play(self, exchange: Callable[[int], bool], *, exchanges_last: bool = True) -> bytes:
        """Let the owners act in turn, and exchange, until the run is over; return its head.

        Args:
            exchange: takes the open round; returns whether anything was new.
            exchanges_last: whether there is an exchange after the decision of the last round.
        """
        idle = 0
        for _ in range(MOST_EXCHANGES):
            state = self.ledger.state()
            if state.stage is LedgerStage.FINISHED:
                return state.head
            steps = [owner.step(state.round) for owner in self.owners]
            if not exchanges_last and self.ledger.state().stage is LedgerStage.FINISHED:
                continue
            has_news = exchange(state.round)
            due = [later for _, later in steps if later is not None]
            idle = 0 if has_news or any(has_effect for has_effect, _ in steps) else idle + 1
            # What was kept back once is there by then.
            self.clock.now += max(1.0, min(due)) if idle >= PATIENCE and due else 1.0
        raise AssertionError(f"the run is not over after {MOST_EXCHANGES} exchanges")


def configuration(seed: int, rounds: int = 2) -> Configuration:
    return load("smoke", settings=(*SETTINGS, f"seed={seed}", f"protocol.rounds={rounds}"))


def direct_head(folder: Path, seed: int, rounds: int = 2) -> bytes:
    """Return the head of the same run, played in this process."""
    with open_memory_run(folder, "run", configuration(seed, rounds), chain_id=CHAIN_ID) as run:
        run.go_on(lambda _: None)
        return run.ledger.state().head
