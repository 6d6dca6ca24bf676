"""The worker processes of an engine, seen from their parent: started, handed tasks, and ended."""

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

_PATIENCE_SECONDS = 5.0

_ENVIRONMENT = {
    # A worker frees and asks for the same large buffers at every step: they stay with it, and are
    # not given back to the kernel, which would have to clear their pages again.
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
    "MALLOC_TOP_PAD_": str(2**28),
    # And they lie on huge pages where the kernel has some: a fifth less time for an LSTM.
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    # One thread each: parallelism comes from the number of workers.
    "OMP_NUM_THREADS": "1",
}
"""What a worker starts with, where the user has not set it."""


@dataclass(slots=True, eq=False)
class WorkerHandle:
    """One process and what it was told to do.

    Attributes:
        process: it.
        connection: the way to it.
        tasks: what it has not answered yet, oldest first.
    """

    process: SpawnProcess
    connection: Connection[Task, Reply]
    tasks: deque[Task]

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self.process.pid is not None, "it was started"
        return self.process.pid

    def hand(self, task: Task) -> None:
        """Give it something to do after all that it has to do already."""
        self.tasks.append(task)
        # Where it has ended, `answers` finds what it said before, or how it ended.
        with suppress(OSError):
            self.connection.send(task)


class WorkerGroup:
    """Worker processes that live until `close`.

    Args:
        shared: the memory they work in.
        count: how many.
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
        """Wait for workers, and yield who has answered what.

        Yields:
            At least one answer.

        Raises:
            TrainingError: a worker has ended, or could not do its task.
        """
        by_connection = {worker.connection: worker for worker in self.workers}
        for ready in wait(list(by_connection)):
            worker = by_connection[ready]  # type: ignore[index]  # only these were waited for
            try:
                reply = worker.connection.recv()
            except (EOFError, OSError) as error:
                raise TrainingError(_last_words(worker)) from error
            if isinstance(reply, FailureReply):
                raise TrainingError(reply.sentence)
            yield worker, worker.tasks.popleft(), reply

    def close(self) -> None:
        """End the workers, whatever they are doing, and wait for them."""
        for worker in self.workers:
            worker.process.terminate()
        for worker in self.workers:
            worker.process.join(_PATIENCE_SECONDS)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.process.close()
            worker.connection.close()
        self.workers = []


def _started(shared: SharedState) -> WorkerHandle:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with theirs:  # of which the worker must hold the only one, so that its end is noticed
        process = context.Process(target=work, args=(theirs, shared), daemon=True)
        process.start()
    return WorkerHandle(process, ours, deque([StartTask()]))


@contextmanager
def _started_quietly() -> Iterator[None]:
    """Start processes that no interrupt of the terminal reaches, in their own environment."""
    added = {name: value for name, value in _ENVIRONMENT.items() if name not in os.environ}
    # Blocked and not ignored: an interrupt that comes meanwhile waits for this process, and the
    # workers, which inherit it, are spared also while they import.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _last_words(worker: WorkerHandle) -> str:
    worker.process.join(_PATIENCE_SECONDS)
    code = worker.process.exitcode
    how = f"with exit code {code}"
    if code is not None and code < 0:
        how = f"by signal {-code}"
    if code == -signal.SIGKILL:
        how += ", as the kernel does where memory runs out"
    return f"training worker {worker.pid} ended {how}, before its work was done"
