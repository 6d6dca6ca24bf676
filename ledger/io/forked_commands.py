"""Commands as processes of their own, forked from a server that has imported their modules.

To import torch takes seconds of one core, and a network that is killed and restarted in every
round would pay for it again each time. A forked command still has its own session, memory, log
files and exit code, and can be killed outright. All commands end with this process, however it
ends: the server follows it, and the kernel kills them with the server (Linux).
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from ledger.io.processes import interrupts_blocked
from ledger.io.retry import Backoff, RetryPolicy
from ledger.protocol.errors import CmflError

POLL_SECONDS = 0.02
PROGRAM_NOT_FOUND = 127
"""The exit code of a program that does not exist, as in shells."""

_PR_SET_PDEATHSIG = 1
_INTERNAL_ERROR = 70
# With more threads than cores, processes that compute at the same time only wait for each other.
_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)
_FORKSERVER = multiprocessing.get_context("forkserver")
# multiprocessing neither starts nor polls processes safely from several threads.
_LOCK = threading.Lock()


class CommandError(CmflError):
    """A command could not be started, failed, or took too long."""


@dataclass(frozen=True, slots=True)
class _Command:
    """The command that a forked process becomes.

    Attributes:
        entry: `module:function` to call with `arguments` as `sys.argv`; None for a program.
        arguments: the first one is the program's name or path.
    """

    entry: str | None
    arguments: tuple[str, ...]
    log: Path
    output: Path
    folder: Path
    environment: dict[str, str]


@dataclass(frozen=True, slots=True)
class CommandProcess:
    """A running or ended command."""

    name: str
    pid: int
    log: Path
    output: Path
    _process: ForkServerProcess

    def code(self) -> int | None:
        """Return its exit code, negative for a signal; None while it is alive."""
        with _LOCK:
            return self._process.exitcode

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal; return False, and send nothing, if it has ended."""
        with _LOCK:
            if self._process.exitcode is not None:
                return False
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:  # the server knows its end before its code is read here
                return False
            return True

    def kill(self) -> None:
        """Kill it (SIGKILL), and return when it is gone."""
        self.signal(signal.SIGKILL)
        self.wait(60)

    def freeze(self) -> None:
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def end(self, seconds: float = 10) -> int:
        """Terminate it, kill it if it has not ended in time, and return its exit code."""
        self.signal(signal.SIGTERM)
        self.thaw()
        code = self.wait(seconds)
        if code is None:
            self.kill()
            code = self.wait(60)
        return -signal.SIGKILL if code is None else code

    def wait(self, seconds: float) -> int | None:
        """Return its exit code; None if it is still alive after that time."""
        return RetryPolicy(Backoff(POLL_SECONDS, 1), deadline_seconds=seconds).poll(self.code)

    def log_tail(self, lines: int = 3) -> str:
        """Return the last lines of its standard error, joined by bars."""
        with suppress(OSError):
            return " | ".join(self.log.read_text("utf-8", "replace").splitlines()[-lines:])
        return ""


class CommandRunner:
    """Starts commands by name, each with its own log files. Safe to share between threads."""

    def __init__(self, entry: str, logs: Path, modules: Sequence[str] = ()) -> None:
        """Start the server, which imports while this process prepares.

        Args:
            modules: imported once by the server. All runners of a process share the server; the
                first one's modules count.
        """
        logs.mkdir(parents=True, exist_ok=True)
        self._entry = entry
        self._logs = logs
        self._started: list[CommandProcess] = []
        with _LOCK:
            _ensure_server(modules)
        # Before multiprocessing's own hook, which waits for children that still run.
        atexit.register(self.close)

    def start(
        self,
        name: str,
        arguments: Sequence[object],
        *,
        environment: dict[str, str] | None = None,
        is_program: bool = False,
    ) -> CommandProcess:
        """Start a command.

        Args:
            arguments: of the entry point, without its name; of a program, all of them.
            is_program: whether to execute a program instead of the entry point.
        """
        words = [str(word) for word in arguments]
        log, output = self._logs / f"{name}.log", self._logs / f"{name}.out"
        command = _Command(
            entry=None if is_program else self._entry,
            arguments=tuple(words if is_program else ["cmfl", *words]),
            log=log,
            output=output,
            folder=Path.cwd(),
            environment=environment or {},
        )
        with _LOCK:
            process = _start(command)
        assert process.pid is not None, "it was started"
        started = CommandProcess(name, process.pid, log, output, process)
        self._started.append(started)
        return started

    def run(
        self,
        name: str,
        arguments: Sequence[object],
        *,
        environment: dict[str, str] | None = None,
        seconds: float = 300,
    ) -> str:
        """Run a command to its end, `seconds` at most, and return its standard output."""
        (self._logs / f"{name}.out").unlink(missing_ok=True)
        process = self.start(name, arguments, environment=environment)
        code = process.wait(seconds)
        if code is None:
            process.kill()
        if code != 0:
            how = f"still ran after {seconds:g} s" if code is None else f"ended with code {code}"
            raise CommandError(f"{name} {how}: {process.log_tail()}")
        return process.output.read_text("utf-8")

    def close(self) -> None:
        atexit.unregister(self.close)
        for process in self._started:
            process.signal(signal.SIGKILL)
        for process in self._started:
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


def _ensure_server(modules: Sequence[str]) -> None:
    # The main module too, which each command would else import again.
    forkserver.set_forkserver_preload(["__main__", __name__, *modules])
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(_ONE_THREAD)
    try:
        with interrupts_blocked():
            forkserver.ensure_running()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _start(command: _Command) -> ForkServerProcess:
    """Fork a process, and return once nothing of the server is left in it."""
    ready, writer = _FORKSERVER.Pipe(duplex=False)
    # Not a daemon, which may have no children.
    process = _FORKSERVER.Process(target=_become, args=(command, writer))
    with ready:
        with writer:
            try:
                process.start()
            except (OSError, EOFError) as error:
                raise CommandError(f"the fork server has ended: {error}") from error
        with suppress(EOFError):
            ready.recv()
    return process


def _become(command: _Command, ready: Connection) -> NoReturn:
    """Turn a forked process into the command."""
    code = _INTERNAL_ERROR
    try:
        _leave_server()
        _redirect(command)
        ready.close()
        os.chdir(command.folder)
        os.environ.update(command.environment)
        code = _call(command)
    except BaseException:  # noqa: BLE001 - whatever it is ends this process, and is in its log
        sys.excepthook(*sys.exc_info())
    finally:
        # Not `sys.exit`, which would unwind into the server's frames.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _leave_server() -> None:
    # A session of its own: Ctrl-C at the terminal reaches this process's parent alone.
    os.setsid()
    # Children hold the server's life line open by default, so that it would outlive its owner.
    os.close(forkserver._forkserver._forkserver_alive_fd)  # type: ignore[attr-defined]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    owner = multiprocessing.parent_process()
    if owner is not None and not owner.is_alive():
        os._exit(_INTERNAL_ERROR)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGHUP})
    # Locks that libraries make have no name that way, which a killed process would leave behind.
    multiprocessing.set_start_method("fork", force=True)
    gc.freeze()  # imported modules stay shared with the server: no collection writes to their pages


def _redirect(command: _Command) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for path, mode, target in (
        (os.devnull, os.O_RDONLY, 0),
        (command.output, flags, 1),
        (command.log, flags, 2),
    ):
        descriptor = os.open(path, mode, 0o600)
        os.dup2(descriptor, target)
        os.close(descriptor)


def _call(command: _Command) -> int:
    if command.entry is None:
        try:
            os.execv(command.arguments[0], command.arguments)  # noqa: S606 - no shell is wanted
        except OSError as error:
            sys.stderr.write(f"{command.arguments[0]}: {error.strerror}\n")
            return PROGRAM_NOT_FOUND
    sys.argv = list(command.arguments)
    module, _, function = command.entry.partition(":")
    entry = getattr(importlib.import_module(module), function)
    try:
        entry()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0
