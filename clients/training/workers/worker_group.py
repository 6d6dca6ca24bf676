"""The worker processes of an engine: started, given tasks, and ended by their parent."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait

from clients.instruction_sets import InstructionSet, capped
from clients.training.port import TrainingError
from clients.training.workers.worker_process import (
    FailureReply,
    Reply,
    SharedState,
    StartTask,
    Task,
    work,
)
from ledger.io.processes import Child, start_child

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


@dataclass(frozen=True, slots=True, eq=False)
class WorkerHandle:
    """A worker process and its unanswered tasks, oldest first."""

    child: Child
    tasks: deque[Task]

    @property
    def pid(self) -> int:
        """Process id."""
        return self.child.pid

    def hand(self, task: Task) -> None:
        """Send a task, to be done after all earlier ones."""
        self.tasks.append(task)
        # If the worker has ended, `answers` reports its last answer or its exit code.
        with suppress(OSError):
            self.child.connection.send(task)


class WorkerGroup:
    """Worker processes that live until `close`.

    Args:
        isa: cap of the instruction set under which they start; None for none.
    """

    def __init__(
        self, shared: SharedState, devices: Sequence[str], isa: InstructionSet | None = None
    ) -> None:
        self.workers: list[WorkerHandle] = []
        try:
            with capped(isa):
                for device in devices:
                    child = start_child(work, shared.on(device), environment=_ENVIRONMENT)
                    self.workers.append(WorkerHandle(child, deque([StartTask()])))
        except BaseException:
            self.close()
            raise

    def answers(self) -> Iterator[tuple[WorkerHandle, Task, Reply]]:
        """Wait for workers, and yield their answers, at least one."""
        by_connection = {worker.child.connection: worker for worker in self.workers}
        for ready in wait(list(by_connection)):
            worker = by_connection[ready]  # type: ignore[index]  # only these were waited for
            try:
                reply = worker.child.connection.recv()
            except (EOFError, OSError) as error:
                raise TrainingError(_exit_message(worker)) from error
            if isinstance(reply, FailureReply):
                raise TrainingError(reply.sentence)
            yield worker, worker.tasks.popleft(), reply

    def close(self) -> None:
        """End the workers, whatever they are doing, and wait for them."""
        for worker in self.workers:
            worker.child.process.terminate()
        for worker in self.workers:
            worker.child.close(_EXIT_SECONDS)
        self.workers = []


def _exit_message(worker: WorkerHandle) -> str:
    code = worker.child.exit_code(_EXIT_SECONDS)
    how = f"with exit code {code}"
    if code is not None and code < 0:
        how = f"by signal {-code}"
    if code == -signal.SIGKILL:
        how += ", as the kernel does where memory runs out"
    return f"training worker {worker.pid} ended {how}, before its work was done"
