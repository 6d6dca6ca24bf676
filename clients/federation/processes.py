"""Processes that are begun, disturbed and ended by name; all of them end with this one."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from clients.federation.messages import Command, Wish, read_message
from ledger.protocol.errors import CmflError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

# With more threads than cores, processes that compute side by side only wait for each other.
_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)
_POLL_SECONDS = 0.02


class SupervisorError(CmflError):
    """A process could not be begun, or did not do what it was begun for."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the fork server's.

    Attributes:
        name: what it is called here.
        pid: its number.
        log: file that holds its standard error.
        output: file that holds its standard output.
    """

    name: str
    pid: int
    log: Path
    output: Path
    _server: Processes

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal, and say whether the process was still alive.

        Args:
            number: which.
        """
        answer = self._server.ask({"wish": Wish.SIGNAL, "pid": self.pid, "signal": number})
        return bool(answer["sent"])

    def kill(self) -> None:
        """End it outright, as `kill -9` does, and return when it is gone."""
        self.signal(signal.SIGKILL)
        self.wait(60)

    def freeze(self) -> None:
        """Let it stand still."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.signal(signal.SIGCONT)

    def end(self, seconds: float = 10) -> int:
        """Ask it to end, and kill it if it does not; return its exit code.

        Args:
            seconds: how long it may take.
        """
        self.signal(signal.SIGTERM)
        self.thaw()
        code = self.wait(seconds)
        if code is None:
            self.kill()
            code = self.wait(60)
        return -signal.SIGKILL if code is None else code

    def code(self) -> int | None:
        """Return its exit code, negative for the signal that ended it; None while it is alive."""
        code: int | None = self._server.ask({"wish": Wish.CODE, "pid": self.pid})["code"]
        return code

    def wait(self, seconds: float) -> int | None:
        """Return its exit code, None if it is still alive after so many seconds.

        Args:
            seconds: how long is waited.
        """
        deadline = time.monotonic() + seconds
        while (code := self.code()) is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return code

    def last_words(self, lines: int = 3) -> str:
        """Return the last lines of its standard error.

        Args:
            lines: how many at most.
        """
        with suppress(OSError):
            return " | ".join(self.log.read_text("utf-8", "replace").splitlines()[-lines:])
        return ""


class Processes:
    """Begins processes through a fork server of its own. Safe to share between threads."""

    def __init__(self, entry: str, modules: Sequence[str] = (), *, logs: Path) -> None:
        """Begin the server; it goes on to import while this one prepares.

        Args:
            entry: what each process runs, as `module:function`.
            modules: that are imported before any but an early one is forked.
            logs: folder of one log for each process.
        """
        logs.mkdir(parents=True, exist_ok=True)
        self._logs = logs
        self._lock = threading.Lock()
        self._asked = 0
        ours, theirs = socket.socketpair()
        self._ours = ours
        self._stream = ours.makefile("rb")
        with theirs, (logs / "supervisor.log").open("ab") as log:
            self._server = subprocess.Popen(  # noqa: S603 - this interpreter and our module
                [
                    *(sys.executable, "-m", "clients.federation.fork_server"),
                    *(str(os.getpid()), str(theirs.fileno()), entry, *modules),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | _ONE_THREAD,
            )

    def start(
        self,
        name: str,
        arguments: Sequence[object],
        *,
        environment: dict[str, str] | None = None,
        is_program: bool = False,
        memory_bytes: int | None = None,
        is_early: bool = False,
    ) -> Process:
        """Begin a process.

        Args:
            name: of its log.
            arguments: of the entry point, with its own name left out; of a program, all of them.
            environment: variables on top of this process's.
            is_program: a program of its own.
            memory_bytes: how much private memory it may have.
            is_early: do not wait until the server has imported everything.

        Raises:
            SupervisorError: the fork server has ended.
        """
        words = [str(word) for word in arguments]
        log, output = self._logs / f"{name}.log", self._logs / f"{name}.out"
        command = Command(
            arguments=tuple(words if is_program else ["cmfl", *words]),
            log=str(log),
            output=str(output),
            folder=str(Path.cwd()),
            environment=environment or {},
            is_program=is_program,
            memory_bytes=memory_bytes,
            is_early=is_early or is_program,
        )
        answer = self.ask({"wish": Wish.START, "command": command.as_dict()})
        return Process(name, answer["pid"], log, output, self)

    def carry_out(
        self,
        name: str,
        arguments: Sequence[object],
        *,
        environment: dict[str, str] | None = None,
        seconds: float = 300,
    ) -> str:
        """Run a command to its end and return what it printed.

        Args:
            name: of its log.
            arguments: of the entry point.
            environment: variables on top of this process's.
            seconds: how long it may take.

        Raises:
            SupervisorError: it failed, or took longer; its last words say why.
        """
        (self._logs / f"{name}.out").unlink(missing_ok=True)
        process = self.start(name, arguments, environment=environment)
        code = process.wait(seconds)
        if code is None:
            process.kill()
        if code != 0:
            how = f"still ran after {seconds:g} s" if code is None else f"ended with code {code}"
            raise SupervisorError(f"{name} {how}: {process.last_words()}")
        return process.output.read_text("utf-8")

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
        """End every process."""
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
