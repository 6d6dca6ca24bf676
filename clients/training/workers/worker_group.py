"""The worker processes of an engine: started, given tasks, and ended by their parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from clients.training.port import TrainingError
from clients.training.workers.worker_process import FailureReply, StartTask, work

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from clients.training.workers.worker_process import Reply, SharedState, Task

_EXIT_SECONDS = 5.0

_ENVIRONMENT = {
    # A worker frees and allocates the same large buffers at every step. They stay in the process:
    # the kernel would have to clear returned pages again.
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
    "MALLOC_TOP_PAD_": str(2**28),
    # Huge pages, where available, save a fifth of the time for an LSTM.
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    # One thread each: the parallelism is that of the workers.
    "OMP_NUM_THREADS": "1",
}
"""A worker's environment, where the user has not set it."""


@dataclass(slots=True, eq=False)
class WorkerHandle:
    """A worker process and its tasks.

    Attributes:
        process: the process.
        connection: the pipe to it.
        tasks: unanswered ones, oldest first.
    """

    process: SpawnProcess
    connection: Connection[Task, Reply]
    tasks: deque[Task]

    @property
    def pid(self) -> int:
        """Process id."""
        assert self.process.pid is not None, "it was started"
        return self.process.pid

    def hand(self, task: Task) -> None:
        """Send a task, to be done after all earlier ones."""
        self.tasks.append(task)
        # If the worker has ended, `answers` reports its last answer or its exit code.
        with suppress(OSError):
            self.connection.send(task)


class WorkerGroup:
    """Worker processes that live until `close`.

    Args:
        shared: the memory they work in.
        count: number of workers.
    """

    def __init__(self, shared: SharedState, count: int) -> None:
        self.workers: list[WorkerHandle] = []
        try:
            with _started_quietly():
                for _ in range(count):
                    self.workers.append(_started(shared))
        except BaseException:
            self.close()
            raise

    def answers(self) -> Iterator[tuple[WorkerHandle, Task, Reply]]:
        """Wait for workers, and yield their answers, at least one.

        Raises:
            TrainingError: a worker has ended, or could not do its task.
        """
        by_connection = {worker.connection: worker for worker in self.workers}
        for ready in wait(list(by_connection)):
            worker = by_connection[ready]  # type: ignore[index]  # only these were waited for
            try:
                reply = worker.connection.recv()
            except (EOFError, OSError) as error:
                raise TrainingError(_exit_message(worker)) from error
            if isinstance(reply, FailureReply):
                raise TrainingError(reply.sentence)
            yield worker, worker.tasks.popleft(), reply

    def close(self) -> None:
        """End the workers, whatever they are doing, and wait for them."""
        for worker in self.workers:
            worker.process.terminate()
        for worker in self.workers:
            worker.process.join(_EXIT_SECONDS)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.process.close()
            worker.connection.close()
        self.workers = []


def _started(shared: SharedState) -> WorkerHandle:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with theirs:  # only the worker may hold this end, so that its exit is noticed
        process = context.Process(target=work, args=(theirs, shared), daemon=True)
        process.start()
    return WorkerHandle(process, ours, deque([StartTask()]))


@contextmanager
def _started_quietly() -> Iterator[None]:
    """Start processes that terminal interrupts do not reach, with their own environment."""
    added = {name: value for name, value in _ENVIRONMENT.items() if name not in os.environ}
    # Blocked, not ignored: an interrupt is delivered to this process later, and the workers, which
    # inherit the mask, are protected while they import.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _exit_message(worker: WorkerHandle) -> str:
    worker.process.join(_EXIT_SECONDS)
    code = worker.process.exitcode
    how = f"with exit code {code}"
    if code is not None and code < 0:
        how = f"by signal {-code}"
    if code == -signal.SIGKILL:
        how += ", as the kernel does where memory runs out"
    return f"training worker {worker.pid} ended {how}, before its work was done"
