"""Commands as processes: started, frozen, thawed, ended, and never outliving their owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.io.processes import ChildEndedError, CommandError, CommandRunner, start_child, task_pool
from tests.io.tasks import answering, dying, endless, refusing, tripled
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.processes import MODULES

ENTRY = "tests.io.program:main"


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandRunner]:
    with CommandRunner(ENTRY, tmp_path_factory.mktemp("logs"), MODULES) as started:
        yield started


def count(path: Path) -> int:
    text = path.read_text("ascii") if path.exists() else ""
    return int(text or -1)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def test_the_output_of_a_command_is_returned(runner: CommandRunner) -> None:
    assert runner.run("say", ["say", "a", "b"]) == "a b"
    assert runner.run("say", ["say", "c"]) == "c", "only the output of this one"


def test_a_failed_command_is_named_with_its_logs_end(runner: CommandRunner) -> None:
    with pytest.raises(CommandError, match="refused ended with code 3"):
        runner.run("refused", ["code", 3])
    with pytest.raises(CommandError, match=r"broken ended with code 70: .*ValueError: so it is"):
        runner.run("broken", ["fail", "so it is"])


def test_a_command_that_takes_too_long_is_killed(runner: CommandRunner, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"slow still ran after 0\.2 s"):
        runner.run("slow", ["count", tmp_path / "count"], seconds=0.2)


def test_a_frozen_process_continues_once_thawed(runner: CommandRunner, tmp_path: Path) -> None:
    path = tmp_path / "count"
    process = runner.start("count", ["count", path])
    wait_until(lambda: count(path) > 0)
    process.signal(signal.SIGSTOP)
    wait_until(lambda: state_of(process.pid) == "T")
    before = count(path)
    assert process.code() is None, "it is frozen and has not ended"
    process.signal(signal.SIGCONT)
    wait_until(lambda: count(path) > before)
    process.kill()
    assert process.code() == -signal.SIGKILL
    assert not process.signal(signal.SIGTERM), "no other process gets its signals"


def test_programs_run_too(runner: CommandRunner) -> None:
    program = [sys.executable, "-c", "print('here')"]
    process = runner.start("program", program, is_program=True)
    assert process.wait(PATIENCE_SECONDS) == 0
    assert process.output.read_text("utf-8").strip() == "here"
    missing = runner.start("missing", ["/no/such/program"], is_program=True)
    assert missing.wait(PATIENCE_SECONDS) == 127
    assert "No such file" in missing.log_tail()


def test_a_runner_ends_its_own_commands_only(runner: CommandRunner, tmp_path: Path) -> None:
    other = runner.start("other", ["count", tmp_path / "other"])
    with CommandRunner(ENTRY, tmp_path / "logs") as group:
        counting, frozen = (group.start(n, ["count", tmp_path / n]) for n in ("one", "two"))
        group.run("other", ["say", "not to the other's file"])
        frozen.signal(signal.SIGSTOP)
    assert not is_alive(counting.pid)
    assert not is_alive(frozen.pid)
    before = count(tmp_path / "other")
    wait_until(lambda: count(tmp_path / "other") > before)
    assert other.output.read_text("utf-8") == ""
    other.kill()


OWNER = """
import signal, sys, time
from pathlib import Path
from ledger.io.processes import CommandRunner
if __name__ == "__main__":
    logs = Path(sys.argv[1])
    runner = CommandRunner({entry!r}, logs)
    for name in ("counting", "frozen"):
        process = runner.start(name, ["count", logs / name])
        print(process.pid, flush=True)
    process.signal(signal.SIGSTOP)
    program = runner.start("program", ["/bin/sleep", 600], is_program=True)
    print(program.pid, flush=True)
    {end}
"""


@pytest.mark.parametrize("end", ["time.sleep(600)", ""])
def test_commands_end_with_their_owner(tmp_path: Path, end: str) -> None:
    command = [sys.executable, "-c", OWNER.format(entry=ENTRY, end=end), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pids = [int(owner.stdout.readline()) for _ in range(3)]
        if end:
            assert all(map(is_alive, pids))
            owner.kill()
    wait_until(lambda: not any(map(is_alive, pids)))


def test_a_killed_server_takes_its_commands_along_and_is_replaced(tmp_path: Path) -> None:
    script = f"""
import os, signal
from multiprocessing import forkserver
from pathlib import Path
from ledger.io.processes import CommandRunner
logs = Path({str(tmp_path)!r})
with CommandRunner({ENTRY!r}, logs) as runner:
    lost = runner.start("lost", ["count", logs / "count"])
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)
    assert lost.wait({PATIENCE_SECONDS}) not in {{None, 0}}
    print(runner.run("say", ["say", "again"]))
"""
    command = [sys.executable, "-c", script]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    assert result.stdout == "again\n"


PROCESSES = pytest.mark.parametrize("processes", [1, 2])


@PROCESSES
def test_results_come_in_the_order_of_the_items(processes: int) -> None:
    reports: list[int] = []
    with task_pool(processes) as pool:
        assert pool.run(tripled, [5, 1, 3], reports.append) == [15, 3, 9]
        assert sorted(reports) == sorted([*range(5), *range(1), *range(3)])
        assert pool.run(tripled, [], reports.append) == []


@PROCESSES
def test_an_error_of_a_task_reaches_the_caller(processes: int) -> None:
    with pytest.raises(ValueError, match="two is refused"), task_pool(processes) as pool:
        pool.run(refusing, [1, 2, 3], print)


def test_a_killed_process_is_an_error_and_no_result() -> None:
    with pytest.raises(ChildEndedError), task_pool(2) as pool:
        pool.run(dying, [1, 2, 3], print)


def test_an_interrupt_stops_all_processes_at_their_next_report(tmp_path: Path) -> None:
    pids: set[int] = set()

    def interrupt(pid: int) -> None:
        pids.add(pid)
        if len(pids) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), task_pool(2) as pool:
        pool.run(endless, [tmp_path] * 4, interrupt)
    assert {path.name for path in tmp_path.iterdir()} == {f"{pid}.stopped" for pid in pids}
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_child_talks_over_its_connection_until_it_is_closed() -> None:
    child = start_child(answering, "a", environment={"CMFL_CHILD": "c"})
    assert "CMFL_CHILD" not in os.environ
    child.connection.send("b")
    assert child.connection.recv() == "abc"
    assert child.exit_code(0) is None
    os.kill(child.pid, signal.SIGINT)
    child.connection.send("the end")
    assert child.exit_code(PATIENCE_SECONDS) == 0, "interrupts are the parent's"
    child.close()


def test_the_end_of_a_child_has_its_exit_code() -> None:
    child = start_child(answering, "a", environment={"CMFL_CHILD": "c"})
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises((EOFError, OSError)):
        child.connection.recv()
    assert child.exit_code(PATIENCE_SECONDS) == -signal.SIGKILL
    child.close()
