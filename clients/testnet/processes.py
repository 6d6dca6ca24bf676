"""Processes that are begun, disturbed and ended by name, each with a log of its own."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from clients.testnet.messages import Command, Wish
from clients.testnet.supervisor import SupervisorError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from clients.testnet.supervisor import Supervisor

_POLL_SECONDS = 0.02


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
    _supervisor: Supervisor

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal, and say whether the process was still alive.

        Args:
            number: which.
        """
        answer = self._supervisor.ask({"wish": Wish.SIGNAL, "pid": self.pid, "signal": number})
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
        code: int | None = self._supervisor.ask({"wish": Wish.CODE, "pid": self.pid})["code"]
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

    def log_tail(self, lines: int = 3) -> str:
        """Return the last lines of its standard error.

        Args:
            lines: how many at most.
        """
        with suppress(OSError):
            return " | ".join(self.log.read_text("utf-8", "replace").splitlines()[-lines:])
        return ""


class Processes:
    """Begins processes by name. Safe to share between threads."""

    def __init__(self, supervisor: Supervisor, logs: Path) -> None:
        """Begin without any.

        Args:
            supervisor: forks them; others may share it, under names and with logs of their own.
            logs: folder of one log for each process.
        """
        logs.mkdir(parents=True, exist_ok=True)
        self._supervisor = supervisor
        self._logs = logs
        self._begun: list[Process] = []

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
        answer = self._supervisor.ask({"wish": Wish.START, "command": command.as_dict()})
        process = Process(name, answer["pid"], log, output, self._supervisor)
        self._begun.append(process)
        return process

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
            raise SupervisorError(f"{name} {how}: {process.log_tail()}")
        return process.output.read_text("utf-8")

    def close(self) -> None:
        """End every process that was begun here; none is left, with or without a server."""
        with suppress(SupervisorError):
            for process in self._begun:
                process.signal(signal.SIGKILL)
            for process in self._begun:
                process.wait(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
