"""A worker that waits for a node or a blob: what it says, and how it is ended."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from clients.worker.process.loop import Startup
from clients.worker.process.worker_folder import WorkerFolder
from clients.worker.process.worker_metrics import WorkerCounters
from clients.worker.process.worker_status import (
    WorkerState,
    read_status,
    status_before,
    worker_status,
)
from ledger.chain.ports import NotServedError
from ledger.io.retry import Backoff
from ledger.protocol.errors import ConfigurationError
from tests.clients.worker.together import Together, hosted_by

if TYPE_CHECKING:
    from pathlib import Path


class Node:
    """A node that answers only after so many tries."""

    def __init__(self, tries: int) -> None:
        self.left = tries

    def answer(self) -> str:
        """Return something, once it is there."""
        self.left -= 1
        if self.left >= 0:
            raise NotServedError("http://127.0.0.1:1: unreachable")
        return "there"


def test_what_it_waits_for_is_in_its_status(tmp_path: Path) -> None:
    folder, waited = WorkerFolder(tmp_path), list[float]()

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        return False

    starting = Startup(folder, wait, lambda: 7.0)
    assert starting.retry_until_ready(Node(3).answer, Backoff(0.25, longest_seconds=0.5)) == "there"
    assert sum(waited) == pytest.approx(0.25 + 0.5 + 0.5)
    said = read_status(folder.status)
    assert (said["stand"], said["pid"], said["round"]) == ("starting", os.getpid(), None)
    assert said["troubles"]["starting"] == {"says": "http://127.0.0.1:1: unreachable", "times": 3}


def test_a_starting_worker_asked_to_leave_leaves_at_once(tmp_path: Path) -> None:
    folder, waits = WorkerFolder(tmp_path), list[float]()

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        folder.leave.touch()
        return False

    assert Startup(folder, wait, lambda: 7.0).retry_until_ready(Node(1000).answer) is None
    assert len(waits) == 1
    assert read_status(folder.status)["stand"] == "ended"
    assert not folder.leave.exists(), "whoever begins it again has not asked it to leave"


def test_a_status_before_a_round_has_all_its_keys(tmp_path: Path) -> None:
    together = Together(tmp_path, hosted_by(1))
    together.step(0)
    whole = worker_status(together.worker(0), WorkerCounters(), WorkerState.RUNNING, "0xabc")
    before = status_before(WorkerState.STARTING, 1)
    assert list(before) == list(whole)
    assert list(before["counts"]) == list(whole["counts"])


def test_a_restarted_worker_was_not_asked_to_leave(tmp_path: Path) -> None:
    folder = WorkerFolder(tmp_path)
    with folder.held():
        folder.leave.touch()
        # Killed before it could: the file outlives it.
        with pytest.raises(ConfigurationError), folder.held():
            pass
        assert folder.leave.exists(), "who is refused takes nothing back"
    with folder.held():
        assert not folder.leave.exists()


def test_a_folder_names_the_process_that_holds_it(tmp_path: Path) -> None:
    folder = WorkerFolder(tmp_path)
    assert folder.holder() is None
    with folder.held():
        assert folder.holder() == os.getpid()
        folder.lock.write_bytes(b"")  # it has just been made
        assert folder.holder() is None
    folder.lock.write_bytes(b"17\n")
    assert folder.holder() is None, "nobody holds it"
