"""The node of a test network: the served embedded chain, or anvil."""

from __future__ import annotations

import secrets
import shutil
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from clients.testnet import ChainKind
from ledger.chain.embedded.evm import TEST_KEYS
from ledger.chain.rpc.wire import HttpTransport
from ledger.io.processes import CommandError, CommandProcess, CommandRunner
from ledger.io.retry import Backoff, RetryPolicy
from ledger.protocol.errors import ChainError, ConfigurationError

if TYPE_CHECKING:
    from clients.testnet.network import NetworkSettings

ANVIL_TEST_KEY = bytes.fromhex("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80")
"""PUBLIC TEST KEY of the first account of every anvil, which prints it itself."""

_POLLING = RetryPolicy(Backoff(0.05, 1), deadline_seconds=180)
_MOST_ANSWER_BYTES = 1 << 20


class ChainNode:
    """A node that can be stopped and restarted on the same port.

    Attributes:
        key: of an account that can pay for everything; public, for tests.
    """

    def __init__(self, settings: NetworkSettings, processes: CommandRunner) -> None:
        """Choose a port; nothing runs yet."""
        self._settings = settings
        self._processes = processes
        self._process: CommandProcess | None = None
        self._goes = False
        self.kind = settings.chain
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.key = TEST_KEYS[0] if self.kind is ChainKind.EMBEDDED else ANVIL_TEST_KEY

    @property
    def file(self) -> Path:
        """The embedded chain's file."""
        return self._settings.home / "chain.sqlite"

    @property
    def process(self) -> CommandProcess:
        """The node's process; CommandError if it has not been started."""
        if self._process is None:
            raise CommandError("the node has not been started")
        return self._process

    def start(self) -> int:
        """Start the node and return its chain id once it answers.

        Until `go`, blocks come with transactions only, one with each, and none at all on anvil
        after `hold`: no window passes while workers start.
        """
        if self.kind is ChainKind.ANVIL:
            self._process = self._processes.start("chain", self._anvil(), is_program=True)
        else:
            arguments = ["chain", "serve", "--home", self._settings.home, "--port", self.port]
            if self._goes:
                arguments += ["--block-time", f"{self._settings.clocks.block_seconds:g}"]
            self._process = self._processes.start("chain", arguments)
        return self._answering(self._process)

    def hold(self) -> None:
        """Accept transactions without making blocks until `go`, on a chain with short windows.

        On anvil each transaction would be a block at once: the commitments of the first workers
        would use up the window of the others.
        """
        if self.kind is ChainKind.ANVIL:
            self.ask("evm_setAutomine", False)

    def go(self) -> None:
        """Make blocks at the configured pace from now on."""
        self._goes = True
        if self.kind is ChainKind.ANVIL:
            # As `--block-time` does: all that is sent meanwhile is in one block.
            self.ask("evm_setIntervalMining", max(1, round(self._settings.clocks.block_seconds)))
            return
        self.stop()
        self.start()

    def mine(self, blocks: int) -> None:
        """Make at least one empty block at once."""
        self.ask("anvil_mine" if self.kind is ChainKind.ANVIL else "evm_mine", hex(blocks))

    def stop(self) -> None:
        """Terminate the node; the embedded chain's file is complete afterwards."""
        self.process.end(30)

    def ask(self, method: str, *parameters: object) -> object:
        """Return the result of one request (ChainError without one)."""
        return HttpTransport(self.url, 30, _MOST_ANSWER_BYTES).ask(method, *parameters)

    def _anvil(self) -> list[object]:
        program = self._settings.anvil or shutil.which("anvil")
        if program is None:
            raise ConfigurationError("there is no anvil on PATH, and CMFL_ANVIL names none")
        return [
            *(program, "--port", self.port, "--silent", "--hardfork", "prague"),
            *("--accounts", "1", "--balance", "1000000000"),
        ]

    def _answering(self, process: CommandProcess) -> int:
        def chain_id() -> int | None:
            try:
                return int(str(self.ask("eth_chainId")), 16)
            except ChainError as error:
                if process.code() is not None:
                    raise CommandError(f"the node ended: {process.log_tail()}") from error
                return None

        answer = _POLLING.poll(chain_id)
        if answer is None:
            raise CommandError(f"the node at {self.url} does not answer")
        return answer


def free_port() -> int:
    """Return a free port that no program is given which asks the system for any port."""
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
