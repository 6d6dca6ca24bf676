"""Task pools and children: results in order, reports on the way, and no process left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from ledger.io.processes import ChildEndedError, start_child, task_pool
from tests.io.tasks import answering, dying, endless, process_of, refusing, tripled
from tests.patience import PATIENCE_SECONDS

PROCESSES = pytest.mark.parametrize("processes", [1, 2])


@PROCESSES
def test_results_come_in_the_order_of_the_items(processes: int) -> None:
    reports: list[int] = []
    with task_pool(processes) as pool:
        assert pool.run(tripled, [5, 1, 3], reports.append) == [15, 3, 9]
        assert sorted(reports) == sorted([*range(5), *range(1), *range(3)])
        assert pool.run(tripled, [], reports.append) == []


@PROCESSES
def test_the_same_processes_take_one_list_after_another(processes: int) -> None:
    reports: list[int] = []
    with task_pool(processes) as pool:
        assert pool.run(process_of, [0] * 8, reports.append) == [0] * 8
        assert pool.run(process_of, [0] * 8, reports.append) == [0] * 8
    assert 1 <= len({*reports}) <= processes


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
