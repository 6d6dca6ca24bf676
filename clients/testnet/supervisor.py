"""The fork server as whoever asks it sees it: begun here, asked one wish at a time, ended here."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, Self

from clients.testnet.messages import read_message
from ledger.protocol.errors import CmflError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

# With more threads than cores, processes that compute side by side only wait for each other.
_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)


class SupervisorError(CmflError):
    """A process could not be begun, or did not do what it was begun for."""


class Supervisor:
    """A fork server of one's own. Safe to share between threads."""

    def __init__(self, entry: str, modules: Sequence[str] = (), *, log: Path) -> None:
        """Begin the server; it goes on to import while this process prepares.

        Args:
            entry: what each process runs, as `module:function`.
            modules: that are imported before any but an early one is forked.
            log: file for what the server itself has to say.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._asked = 0
        ours, theirs = socket.socketpair()
        self._ours = ours
        self._stream = ours.makefile("rb")
        with theirs, log.open("ab") as said:
            self._server = subprocess.Popen(  # noqa: S603 - this interpreter and our module
                [
                    *(sys.executable, "-m", "clients.testnet.fork_server"),
                    *(str(os.getpid()), str(theirs.fileno()), entry, *modules),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=os.environ | _ONE_THREAD,
            )

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the fork server's answer to a message.

        Args:
            message: a wish.

        Raises:
            SupervisorError: the server has ended.
        """
        try:
            with self._lock:
                self._asked += 1
                numbered = {**message, "number": self._asked}
                self._ours.sendall(json.dumps(numbered).encode() + b"\n")
                answer = read_message(self._stream)
                # Whoever asked before may have been interrupted, and his answer be still there.
                while answer is not None and answer["number"] != self._asked:
                    answer = read_message(self._stream)
        except OSError as error:
            raise SupervisorError(f"the fork server has ended: {error.strerror}") from error
        if answer is None:
            raise SupervisorError("the fork server has ended; supervisor.log may say why")
        return answer

    def close(self) -> None:
        """End the server, and with it every process that it has forked."""
        self._stream.close()
        self._ours.close()
        try:
            self._server.wait(30)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
