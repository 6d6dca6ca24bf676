"""A plugin of pytest that runs tests in forks of the process that has collected them.

pytest-xdist begins processes that import and collect everything once each, and sends six messages
for a test: the 1,470 tests of `tests/protocol` take 44 s of processor time with two of them, and 34
with two forks.
"""

from __future__ import annotations

import multiprocessing
import sys
from dataclasses import dataclass
from itertools import zip_longest
from multiprocessing.connection import wait
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from _pytest import runner

from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from ctypes import c_bool, c_int
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkProcess
    from multiprocessing.queues import SimpleQueue

_FORK = multiprocessing.get_context("fork")
_INTERRUPTED = 130


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the number of processes."""
    parser.addoption(
        "--processes", type=int, default=1, help="run the tests in so many forks of this process"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Let forks run all tests; None, and pytest goes on, for one process or if none can be run."""
    option = session.config.option
    if option.processes < 2 or option.collectonly or session.testsfailed:
        return None
    # Here, so that it ends with this process; each fork would make one of its own.
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    work = _Work(session.items)
    forks = [_Fork.start(session, work) for _ in range(option.processes)]
    try:
        work.begin(option.processes)
        for report in _reports(session, forks):
            session.config.hook.pytest_runtest_logreport(report=report)
            if session.shouldfail:
                work.stop()
    finally:
        work.stop()
        for fork in forks:
            fork.end()
    return True


class _Work:
    """The tests in units, each for one process: a module, or a group of modules.

    What a module makes for its tests is made once that way.
    """

    def __init__(self, items: Sequence[pytest.Item]) -> None:
        self._items = items
        units: dict[str, list[int]] = {}
        for number, item in enumerate(items):
            mark = item.get_closest_marker("group")
            unit = mark.args[0] if mark else item.nodeid.partition("::")[0]
            units.setdefault(unit, []).append(number)
        self._units = list(units.values())
        self._queue: SimpleQueue[int | None] = _FORK.SimpleQueue()
        self._stopped: c_bool = _FORK.RawValue("b", 0)

    def begin(self, processes: int) -> None:
        """Let so many processes take units, in the order of collection."""
        for unit in (*range(len(self._units)), *[None] * processes):
            self._queue.put(unit)

    def stop(self) -> None:
        """Let no process begin another test."""
        self._stopped.value = True

    def taken(self) -> Iterator[tuple[int, pytest.Item | None]]:
        """Yield the number of each test of a process, and the next one of its unit."""
        for unit in iter(self._queue.get, None):
            numbers = self._units[unit]
            for number, following in zip_longest(numbers, numbers[1:]):
                if self._stopped.value:
                    return
                yield number, None if following is None else self._items[following]


@dataclass(frozen=True, slots=True)
class _Fork:
    """A process that runs tests.

    Attributes:
        reports: what pytest says of its tests, and None at the end.
        running: the number of the last test that it began.
    """

    process: ForkProcess
    reports: Connection[Any, Any]
    running: c_int

    @classmethod
    def start(cls, session: pytest.Session, work: _Work) -> _Fork:
        """Fork this process."""
        reports, writer = _FORK.Pipe(duplex=False)
        running = _FORK.RawValue("i", 0)
        process = _FORK.Process(target=_run, args=(session, work, writer, running))
        with writer:
            process.start()
        return cls(process, reports, running)

    def end(self) -> int | None:
        """Wait for its end, kill it if that takes long, and return its exit code."""
        self.process.join(PATIENCE_SECONDS)
        self.process.kill()
        self.process.join()
        return self.process.exitcode


def _run(
    session: pytest.Session, work: _Work, writer: Connection[Any, Any], running: c_int
) -> None:
    """Be a process that runs tests."""
    # Processes that a test begins would else import the main module, which is pytest.
    sys.modules["__main__"] = ModuleType("__main__")
    plugins = session.config.pluginmanager
    plugins.unregister(name="terminalreporter")
    plugins.register(_Sender(session.config, writer))
    # The files that hold what a test prints would else be those of all processes.
    capture = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    # A folder of its own in the one of all: pytest numbers what it makes by what is there.
    folders = session.config._tmp_path_factory  # type: ignore[attr-defined]
    folders._basetemp = folders.mktemp("process")
    try:
        for running.value, following in work.taken():
            item = session.items[running.value]
            # What the session made for its tests stays until no unit is left to take.
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following or session)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    finally:
        runner.pytest_sessionfinish(session)
    writer.send(None)


class _Sender:
    """A plugin of a fork that sends reports, but none of a setup or an end that went well."""

    def __init__(self, config: pytest.Config, writer: Connection[Any, Any]) -> None:
        self._config = config
        self._writer = writer

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send it."""
        if report.when == "call" or not report.passed:
            serialise = self._config.hook.pytest_report_to_serializable
            self._writer.send(serialise(config=self._config, report=report))


def _reports(session: pytest.Session, forks: Sequence[_Fork]) -> Iterator[pytest.TestReport]:
    """Yield all reports of all forks; of one that ended early, one that names its last test."""
    parse = session.config.hook.pytest_report_from_serializable
    working = list(forks)
    while working:
        ready = wait([fork.reports for fork in working])
        for fork in [fork for fork in working if fork.reports in ready]:
            try:
                told = fork.reports.recv()
            except (EOFError, OSError):  # the latter where it was killed within a report
                working.remove(fork)
                yield _ended_early(session.items[fork.running.value], fork.end())
                continue
            if told is None:
                working.remove(fork)
            else:
                yield parse(config=session.config, data=told)


def _ended_early(item: pytest.Item, code: int | None) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords={},
        outcome="failed",
        longrepr=f"its process ended here with code {code}, and ran no other test",
        when="call",
    )
