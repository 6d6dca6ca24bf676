"""What a worker tells of itself, from the time when it waits for a node on."""

from __future__ import annotations

import io
import json
import logging
import os
import stat
from typing import TYPE_CHECKING

import httpx
import pytest

from clients.worker.process.log_format import LogFormat, logging_to
from clients.worker.process.loop import Startup
from clients.worker.process.worker_folder import WorkerFolder
from clients.worker.process.worker_metrics import WorkerCounters, WorkerMetrics, serve_metrics
from clients.worker.process.worker_status import StatusFile, WorkerState, read_status, worker_status
from ledger.chain.ports import NotServedError
from ledger.io.home import Disk
from ledger.io.retry import Backoff
from ledger.protocol.errors import ConfigurationError
from tests.clients.worker.together import ROOMY, Together, hosted_by
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path


def test_a_status_tells_roles_and_where_the_worker_is(tmp_path: Path) -> None:
    together = Together(tmp_path, hosted_by(1))
    together.step(0)
    together.step(0)
    counts = WorkerCounters()
    counts.look(together.worker(0))
    counts.look(together.worker(0))
    status = worker_status(together.worker(0), counts, WorkerState.RUNNING, "0xabc")
    roles = [role["role"] for role in status["roles"].values()]
    assert (roles.count("member"), roles.count("trainer"), roles.count("idle")) == (5, 7, 2)
    assert status["round"] == 1
    assert status["head"] == f"0x{together.ledger.state().head.hex()}"
    assert status["counts"]["commitments"] == 12, "counted once, however often one looks"
    assert status["view"] == {"phase": 1, "view": None}
    assert json.loads(json.dumps(status)) == status


def test_a_status_is_written_when_it_changes_and_read_back(tmp_path: Path) -> None:
    file = StatusFile(tmp_path / "status.json")
    file.write({"format": 1, "round": 1}, at=1.0)
    file.write({"format": 1, "round": 1}, at=2.0)
    assert read_status(tmp_path / "status.json")["at"] == 1.0
    file.write({"format": 1, "round": 2}, at=3.0)
    assert read_status(tmp_path / "status.json")["at"] == 3.0
    (tmp_path / "status.json").write_text('{"format": 9}')
    with pytest.raises(ConfigurationError, match="no status"):
        read_status(tmp_path / "status.json")


def test_a_folder_is_its_owner_s_and_held_by_one(tmp_path: Path) -> None:
    folder = WorkerFolder(tmp_path / "own")
    assert not folder.is_held()
    with folder.held():
        assert folder.is_held()
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
        with pytest.raises(ConfigurationError, match="one journal is for one"), folder.held():
            pass
    assert not folder.is_held()


def test_what_killed_workers_were_writing_is_removed_by_the_next(tmp_path: Path) -> None:
    folder = WorkerFolder(tmp_path / "own")
    folder.payloads.mkdir(parents=True)
    for one in (folder.path, folder.payloads):
        Disk().create(one, b"half an update")
    (folder.payloads / "kept.update").write_bytes(b"whole")
    with pytest.raises(ConfigurationError), folder.held(), folder.held():
        pass
    left = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"worker.lock", "kept.update"}


@pytest.mark.parametrize("style", [*LogFormat])
def test_a_log_is_one_line_an_event(style: LogFormat) -> None:
    stream = io.StringIO()
    with logging_to(stream, style):
        logging.getLogger("clients.worker").info("round %d\nbegins", 3, extra={"round": 3})
        logging.getLogger("elsewhere").info("nothing of ours")
    (line,) = stream.getvalue().splitlines()
    if style is LogFormat.JSON:
        told = json.loads(line)
        assert (told["event"], told["round"], told["level"]) == ("round 3\nbegins", 3, "info")
    else:
        assert line.endswith("info    round 3 begins")


@pytest.mark.parametrize("style", [*LogFormat])
def test_a_log_holds_nothing_that_a_terminal_obeys(style: LogFormat) -> None:
    stream = io.StringIO()
    with logging_to(stream, style):
        # Clears the screen, names the window, turns the line round, and ends in half a character.
        logging.getLogger("clients.worker").warning("%s", "\x1b[2J\x1b]0;x\x07\u202e\x9b\udc80 é")
    (line,) = stream.getvalue().splitlines()
    assert line.isprintable()
    if style is LogFormat.TEXT:
        assert line.endswith(r"\x1b[2J\x1b]0;x\x07\u202e\x9b\udc80 é")


def test_prometheus_reads_what_was_counted(tmp_path: Path) -> None:
    together = Together(tmp_path, hosted_by(1), ROOMY)
    together.step(0)
    worker = together.worker(0)
    counts = WorkerCounters(commitments=12)
    with serve_metrics(WorkerMetrics(worker, counts, lambda: 1000.0), 0) as port:
        url = f"http://127.0.0.1:{port}/metrics"
        text = httpx.get(url, timeout=PATIENCE_SECONDS).text
        rebound = httpx.get(url, headers={"Host": "a.example"}, timeout=PATIENCE_SECONDS)
    assert (rebound.status_code, "commitments" in rebound.text) == (421, False)
    assert "cmfl_worker_commitments_total 12.0" in text
    assert 'cmfl_worker_errors_total{part="chain"} 0.0' in text
    assert "cmfl_worker_behind_seconds" in text


class Node:
    def __init__(self, tries: int) -> None:
        self.left = tries

    def answer(self) -> str:
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
