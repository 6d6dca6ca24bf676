"""Work in several processes: results in order, reports as it goes, and nothing left behind."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clients.processes import ProcessError, StoppedError, in_processes, workers

if TYPE_CHECKING:
    from collections.abc import Callable

PROCESSES = pytest.mark.parametrize("processes", [1, 2])


def tripled(item: int, report: Callable[[int], None]) -> int:
    for step in range(item):
        report(step)
    return 3 * item


def process_of(item: int, report: Callable[[int], None]) -> int:
    report(os.getpid())
    return item


def refusing(item: int, _report: Callable[[int], None]) -> int:
    if item == 2:
        raise ValueError("two is refused")
    return item


def dying(item: int, _report: Callable[[int], None]) -> int:
    if item == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def endless(folder: Path, report: Callable[[int], None]) -> None:
    """Report until told to stop, and leave a file that says so."""
    try:
        while True:
            report(os.getpid())
            time.sleep(0.01)
    except StoppedError:
        (folder / f"{os.getpid()}.stopped").touch()
        raise


@PROCESSES
def test_results_come_in_the_order_of_the_items_and_every_report_arrives(processes: int) -> None:
    reports: list[int] = []
    assert in_processes(tripled, [5, 1, 3], processes, reports.append) == [15, 3, 9]
    assert sorted(reports) == sorted([*range(5), *range(1), *range(3)])
    assert in_processes(tripled, [], processes, reports.append) == []


@PROCESSES
def test_the_same_processes_take_one_list_of_work_after_another(processes: int) -> None:
    reports: list[int] = []
    with workers(processes) as opened:
        assert opened.carry_out(tripled, [2, 1], reports.append) == [6, 3]
        assert opened.carry_out(process_of, [0] * 8, reports.append) == [0] * 8
        assert opened.carry_out(process_of, [0] * 8, reports.append) == [0] * 8
    assert 1 <= len({*reports[3:]}) <= processes


@PROCESSES
def test_an_error_of_the_work_reaches_the_caller(processes: int) -> None:
    with pytest.raises(ValueError, match="two is refused"):
        in_processes(refusing, [1, 2, 3], processes, print)


def test_a_process_that_was_killed_is_an_error_and_not_a_wrong_result() -> None:
    with pytest.raises(ProcessError, match="ended before its work"):
        in_processes(dying, [1, 2, 3], 2, print)


def test_an_interrupt_ends_all_processes_at_their_next_report(tmp_path: Path) -> None:
    seen: set[int] = set()

    def interrupt(pid: int) -> None:
        seen.add(pid)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_processes(endless, [tmp_path] * 4, 2, interrupt)
    assert {path.name for path in tmp_path.iterdir()} == {f"{pid}.stopped" for pid in seen}
    assert not any(Path(f"/proc/{pid}").exists() for pid in seen)
