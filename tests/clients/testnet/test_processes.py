"""Processes begin, stand still, go on, end, and outlive nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from clients.testnet.processes import Processes
from clients.testnet.supervisor import Supervisor, SupervisorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ENTRY = "tests.clients.testnet.program:main"
PATIENCE_SECONDS = 30


@pytest.fixture(scope="module")
def supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    with Supervisor(ENTRY, log=tmp_path_factory.mktemp("supervisor") / "supervisor.log") as begun:
        yield begun


@pytest.fixture(scope="module")
def processes(
    supervisor: Supervisor, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Processes]:
    with Processes(supervisor, tmp_path_factory.mktemp("logs")) as begun:
        yield begun


def reached(is_so: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def count(path: Path) -> int:
    text = path.read_text("ascii") if path.exists() else ""
    return int(text or -1)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_what_a_command_prints_comes_back(processes: Processes) -> None:
    assert processes.carry_out("say", ["say", "a", "b"]) == "a b"
    assert processes.carry_out("say", ["say", "c"]) == "c", "only what this one printed"


def test_each_process_has_variables_of_its_own(processes: Processes) -> None:
    told = {"CMFL_TOLD": "something"}
    assert processes.carry_out("told", ["variable", "CMFL_TOLD"], environment=told) == "something"
    with pytest.raises(SupervisorError, match="KeyError"):
        processes.carry_out("untold", ["variable", "CMFL_TOLD"])


def test_a_command_that_fails_is_named_with_its_last_words(processes: Processes) -> None:
    with pytest.raises(SupervisorError, match="refused ended with code 3"):
        processes.carry_out("refused", ["code", 3])
    with pytest.raises(SupervisorError, match=r"broken ended with code 70: .*ValueError: so it is"):
        processes.carry_out("broken", ["fail", "so it is"])


def test_a_command_that_takes_too_long_is_killed(processes: Processes, tmp_path: Path) -> None:
    with pytest.raises(SupervisorError, match=r"slow still ran after 0\.2 s"):
        processes.carry_out("slow", ["count", tmp_path / "count"], seconds=0.2)


def test_a_process_that_is_frozen_goes_on_once_thawed(processes: Processes, tmp_path: Path) -> None:
    path = tmp_path / "count"
    process = processes.start("count", ["count", path])
    assert reached(lambda: count(path) > 0)
    process.freeze()
    time.sleep(0.05)
    before = count(path)
    time.sleep(0.1)
    assert count(path) == before
    assert process.code() is None, "it stands still and has not ended"
    process.thaw()
    assert reached(lambda: count(path) > before)
    process.kill()
    assert process.code() == -signal.SIGKILL
    assert not process.signal(signal.SIGTERM), "nobody else's process gets its signals"


def test_a_frozen_process_can_be_ended(processes: Processes, tmp_path: Path) -> None:
    process = processes.start("count", ["count", tmp_path / "count"])
    process.freeze()
    assert process.end() == -signal.SIGTERM


def test_a_process_has_no_more_memory_than_it_may(processes: Processes) -> None:
    assert processes.carry_out("fill", ["fill", 10**6]) == str(10**6)
    process = processes.start("limited", ["fill", 2**31], memory_bytes=2**29)
    assert process.wait(PATIENCE_SECONDS) == 70
    assert "MemoryError" in process.log_tail()


def test_a_program_of_its_own_runs_too(processes: Processes) -> None:
    program = [sys.executable, "-c", "print('here')"]
    process = processes.start("program", program, is_program=True)
    assert process.wait(PATIENCE_SECONDS) == 0
    assert process.output.read_text("utf-8").strip() == "here"
    missing = processes.start("missing", ["/no/such/program"], is_program=True)
    assert missing.wait(PATIENCE_SECONDS) == 127
    assert "No such file" in missing.log_tail()


def test_who_is_interrupted_while_asking_takes_no_answer_for_another(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = processes.start("count", ["count", tmp_path / "count"])

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    # As Ctrl-C between what is asked and its answer.
    with monkeypatch.context() as patch:
        patch.setattr("clients.testnet.supervisor.read_message", interrupted)
        with pytest.raises(KeyboardInterrupt):
            process.code()
    assert process.signal(signal.SIGTERM)
    assert process.wait(PATIENCE_SECONDS) == -signal.SIGTERM


def test_those_that_share_a_server_end_with_their_own_group_alone(
    supervisor: Supervisor, processes: Processes, tmp_path: Path
) -> None:
    other = processes.start("other", ["count", tmp_path / "other"])
    with Processes(supervisor, tmp_path / "logs") as group:
        counting, frozen = (group.start(n, ["count", tmp_path / n]) for n in ("one", "two"))
        group.carry_out("other", ["say", "not to the other's file"])
        frozen.freeze()
    assert not is_alive(counting.pid)
    assert not is_alive(frozen.pid)
    before = count(tmp_path / "other")
    assert reached(lambda: count(tmp_path / "other") > before), "it counts on"
    assert other.output.read_text("utf-8") == ""
    other.kill()


SUPERVISOR = """
import sys, time
from pathlib import Path
from clients.testnet.processes import Processes
from clients.testnet.supervisor import Supervisor
logs = Path(sys.argv[1])
begun = Processes(Supervisor({entry!r}, log=logs / "supervisor.log"), logs)
for name in ("one", "two"):
    print(begun.start(name, ["count", Path(sys.argv[1]) / name]).pid, flush=True)
time.sleep(600)
"""


def test_all_processes_end_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SUPERVISOR.format(entry=ENTRY), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        pids = [int(supervisor.stdout.readline()) for _ in range(2)]
        assert all(map(is_alive, pids))
        supervisor.kill()
    assert reached(lambda: not any(map(is_alive, pids)))


def test_a_fork_server_that_is_gone_is_no_traceback(tmp_path: Path) -> None:
    supervisor = Supervisor(ENTRY, log=tmp_path / "supervisor.log")
    begun = Processes(supervisor, tmp_path)
    begun.carry_out("say", ["say"])
    supervisor._server.kill()
    supervisor._server.wait()
    with pytest.raises(SupervisorError, match="the fork server has ended"):
        begun.start("late", ["say"])
    begun.close()
    supervisor.close()
