"""Child processes that compute for this one and end with it: pools, single children, commands.

Children of a computation are spawned, not forked: threads of this process cannot leave locks behind
in them, and some need environment variables from their first instruction on.

Commands are forked from a server that has imported their modules, since importing torch takes
seconds. A forked command still has its own session, memory, log files and exit code, and can be
killed. All commands end with this process: the kernel kills them with the server (Linux).
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import multiprocessing
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, ProcessPoolExecutor
from concurrent.futures import wait as wait_for_futures
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess, SpawnProcess
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeVar

from ledger.io.retry import Backoff, RetryPolicy
from ledger.protocol.errors import CmflError

Item = TypeVar("Item")
Result = TypeVar("Result")
Report = TypeVar("Report")

_SPAWN = multiprocessing.get_context("spawn")
_POLL_SECONDS = 0.1
_OF_TERMINAL = {signal.SIGINT, signal.SIGHUP}


class ChildEndedError(CmflError):
    """A child process ended before its work was done."""

    def __init__(self) -> None:
        super().__init__(
            "a process ended before its work was done: it was killed, or the machine ran out of "
            "memory"
        )


class StoppedError(Exception):
    """The caller was interrupted; raised inside a task by its next report."""


def follow_parent() -> None:
    """End this process with its parent, and leave interrupts to the parent."""
    # Ctrl-C and HUP reach every process of the terminal; the parent decides what they mean.
    for number in _OF_TERMINAL:
        signal.signal(number, signal.SIG_IGN)
    atexit.register(gc.freeze)  # it ends at once: nothing looks for garbage in what was imported
    # Locks that libraries make (tqdm, for torch.fx) have no name that way: a killed process would
    # leave it behind, and the resource tracker complain.
    multiprocessing.set_start_method("fork", force=True)

    def end_with_parent() -> None:
        # A pool's workers wait for ever on a queue that they keep open themselves, so that a parent
        # killed outright would leave them behind.
        parent = multiprocessing.parent_process()
        if parent is not None:
            wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Start processes that no interrupt of the terminal reaches; this one gets it afterwards."""
    resource_tracker.ensure_running()  # which would unblock them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_TERMINAL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(frozen=True, slots=True, eq=False)
class Child:
    """A child process and this end of the pipe to it."""

    process: SpawnProcess
    connection: Connection[Any, Any]

    @property
    def pid(self) -> int:
        assert self.process.pid is not None, "it was started"
        return self.process.pid

    def exit_code(self, seconds: float) -> int | None:
        self.process.join(seconds)
        return self.process.exitcode

    def close(self, grace_seconds: float = 0.0) -> None:
        """Terminate it, kill it after the grace period, and release what it holds here."""
        if grace_seconds:
            self.process.terminate()
            self.process.join(grace_seconds)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.process.close()
        self.connection.close()


def start_child(
    target: Callable[..., None], *arguments: object, environment: Mapping[str, str] | None = None
) -> Child:
    """Start a process that calls a module's function, which should call `follow_parent` first."""
    added = {name: value for name, value in (environment or {}).items() if name not in os.environ}
    ours, theirs = _SPAWN.Pipe()
    try:
        # The child alone holds its end, so that its end closes the pipe.
        with theirs, _environment(added), interrupts_blocked():
            process = _SPAWN.Process(target=target, args=(*arguments, theirs), daemon=True)
            process.start()
    except BaseException:
        ours.close()
        raise
    return Child(process, ours)


@contextmanager
def worker_pool(
    processes: int, initializer: Callable[..., None], arguments: tuple[object, ...] = ()
) -> Iterator[ProcessPoolExecutor]:
    """Open a pool of fresh processes; each calls the initializer first."""
    pool = ProcessPoolExecutor(processes, _SPAWN, _initialize, (initializer, arguments))
    try:
        yield pool
    except BrokenExecutor as error:
        raise ChildEndedError from error
    finally:
        pool.shutdown(cancel_futures=True)


def _initialize(initializer: Callable[..., None], arguments: tuple[object, ...]) -> None:
    follow_parent()
    initializer(*arguments)


@dataclass(frozen=True, slots=True)
class TaskPool:
    """Takes one list of tasks after another, in this process or in a pool."""

    _pool: ProcessPoolExecutor | None = None
    _reports: Queue[Any] | None = None

    def run(
        self,
        task: Callable[[Item, Callable[[Report], None]], Result],
        items: Sequence[Item],
        on_report: Callable[[Report], None],
    ) -> list[Result]:
        """Return each item's result, in order; reports raise `StoppedError` after an interrupt."""
        if self._pool is None or self._reports is None:
            return [task(item, on_report) for item in items]
        futures = [self._pool.submit(_Worker.run, task, item) for item in items]
        waiting, missing = set(futures), 0
        while waiting or missing > 0:
            done, waiting = wait_for_futures(waiting, 0, FIRST_COMPLETED)
            missing += sum(future.result()[1] for future in done)
            timeout = _POLL_SECONDS
            with suppress(queue.Empty):
                while True:
                    report = self._reports.get(timeout=timeout)
                    missing, timeout = missing - 1, 0.0
                    on_report(report)
        return [future.result()[0] for future in futures]


@contextmanager
def task_pool(processes: int) -> Iterator[TaskPool]:
    """Open processes for tasks that report as they go on; all end with the context.

    One process does all here. A script that asks for more must guard its main part by
    `if __name__ == "__main__"`.
    """
    if processes == 1:
        yield TaskPool()
        return
    reports, stop = _SPAWN.Queue(), _SPAWN.Event()
    with worker_pool(processes, _Worker.start, (reports, stop)) as pool:
        try:
            yield TaskPool(pool, reports)
        finally:
            stop.set()


class _Worker:
    reports: ClassVar[Queue[Any]]
    stop: ClassVar[Event]
    sent: ClassVar[int] = 0

    @classmethod
    def start(cls, reports: Queue[Any], stop: Event) -> None:
        cls.reports, cls.stop = reports, stop

    @classmethod
    def run(
        cls, task: Callable[[Item, Callable[[Report], None]], Result], item: Item
    ) -> tuple[Result, int]:
        cls.sent = 0
        return task(item, cls.report), cls.sent

    @classmethod
    def report(cls, report: object) -> None:
        if cls.stop.is_set():
            raise StoppedError
        cls.reports.put(report)
        cls.sent += 1


POLL_SECONDS = 0.02
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
    """The command that a forked process becomes."""

    entry: str | None  # `module:function`; None for a program
    arguments: tuple[str, ...]  # the first one is the program's name or path
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
        self.signal(signal.SIGKILL)
        self.wait(60)

    def end(self, seconds: float = 10) -> int:
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # it may be stopped
        code = self.wait(seconds)
        if code is None:
            self.kill()
            code = self.wait(60)
        return -signal.SIGKILL if code is None else code

    def wait(self, seconds: float) -> int | None:
        return RetryPolicy(Backoff(POLL_SECONDS, 1), deadline_seconds=seconds).poll(self.code)

    def log_tail(self, lines: int = 3) -> str:
        with suppress(OSError):
            return " | ".join(self.log.read_text("utf-8", "replace").splitlines()[-lines:])
        return ""


class CommandRunner(AbstractContextManager["CommandRunner"]):
    """Starts commands by name, each with its own log files. Safe to share between threads."""

    def __init__(self, entry: str, logs: Path, modules: Sequence[str] = ()) -> None:
        """Start the process's one server, which imports the first runner's modules meanwhile."""
        logs.mkdir(parents=True, exist_ok=True)
        self._entry = entry
        self._logs = logs
        self._started: list[CommandProcess] = []
        with _LOCK, _environment(_ONE_THREAD), interrupts_blocked():
            # The main module too, which each command would else import again.
            forkserver.set_forkserver_preload(["__main__", __name__, *modules])
            forkserver.ensure_running()
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
        """Start a command: a program with all its arguments, or the entry point's arguments."""
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

    def __exit__(self, *_: object) -> None:
        self.close()


def _start(command: _Command) -> ForkServerProcess:
    """Fork a process, and return once it holds nothing of the server."""
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
    code = _INTERNAL_ERROR
    try:
        _leave_server()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        for target, path, mode in (
            (0, os.devnull, os.O_RDONLY),
            (1, command.output, flags),
            (2, command.log, flags),
        ):
            descriptor = os.open(path, mode, 0o600)
            os.dup2(descriptor, target)
            os.close(descriptor)
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
        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    owner = multiprocessing.parent_process()
    if owner is not None and not owner.is_alive():
        os._exit(_INTERNAL_ERROR)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGHUP})
    multiprocessing.set_start_method("fork", force=True)  # as in `follow_parent`
    gc.freeze()  # imported modules stay shared with the server: no collection writes to their pages


def _call(command: _Command) -> int:
    if command.entry is None:
        try:
            os.execv(command.arguments[0], command.arguments)  # noqa: S606 - no shell is wanted
        except OSError as error:
            sys.stderr.write(f"{command.arguments[0]}: {error.strerror}\n")
            return 127  # as in shells, where there is no such program
    sys.argv = list(command.arguments)
    module, _, function = command.entry.partition(":")
    entry = getattr(importlib.import_module(module), function)
    try:
        entry()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0
