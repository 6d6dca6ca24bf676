"""Tests run inside this process, the nearest first, up to the first that fails."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from pathlib import Path
    from types import FrameType

# A test loops that takes so many seconds of CPU, and so many times what it takes without a mutant.
PATIENCE_SECONDS = 5.0
PATIENCE = 10.0
QUIET = (
    "-q",
    "-p",
    "no:cacheprovider",
    "--no-header",
    "--no-summary",
    "--continue-on-collection-errors",
)
LOOPS = 99


class LoopsError(KeyboardInterrupt):
    """A test has used up its time; neither a test, nor Hypothesis, nor pytest goes on after it."""


@dataclass(slots=True, eq=False)
class Tests:
    """A plugin of pytest that picks tests, puts them in order and looks at what becomes of them.

    Attributes:
        order: the tests to run, the nearest first; None for all, as they come.
        limit: seconds of CPU that one test may take at most; one that takes more loops.
        without: seconds of CPU that tests take without a mutant, by which some may take less.
        again: seconds of CPU after which a loop that goes on is stopped once more.
        running: the test that is running.
        to_the_end: go on after a failure.
        seconds: of CPU, of each test that was run.
        failed: the tests that failed.
        loops: whether the test that is running has used up its time.
    """

    order: Sequence[str] | None
    limit: float
    without: Mapping[str, float] = field(default_factory=dict)
    again: float = 1.0
    to_the_end: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    running: str = ""
    loops: bool = False

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        # Not above: pytest rewrites assertions of what it imports itself.
        from hypothesis import Phase, settings

        # A failing example need not become a small one.
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile(
            "mutants", parent=settings.default, max_examples=100, phases=phases, database=None
        )
        settings.load_profile("mutants")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.order is None:
            return
        places = {nodeid: place for place, nodeid in enumerate(self.order)}
        picked = [item for item in items if item.nodeid in places]
        items[:] = sorted(picked, key=lambda item: places[item.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self.running = item.nodeid
        # Again and again: what is mutated may pass over the first.
        signal.setitimer(signal.ITIMER_PROF, self.limit_of(item.nodeid), self.again)
        started = time.process_time()
        result = yield
        signal.setitimer(signal.ITIMER_PROF, 0)
        self.seconds[item.nodeid] = round(time.process_time() - started, 3)
        self.running = ""
        return result

    def limit_of(self, test: str) -> float:
        """Return after how many seconds of CPU a test loops."""
        if test not in self.without:
            return self.limit
        return min(self.limit, PATIENCE_SECONDS + PATIENCE * self.without[test])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed:
            self.failed.append(item.nodeid)
            # Not pytest's own option: that one also stops at a file that cannot be collected.
            item.session.shouldfail = not self.to_the_end and "one failure is enough"
        return report


def run(tests: Tests, paths: Sequence[str], folder: Path, *options: str) -> int:
    """Run tests and return pytest's exit code, or LOOPS.

    Args:
        tests: which, and what to note.
        paths: files or folders to collect from.
        folder: for what tests write.
        options: further ones of pytest.
    """

    def stop(_signal: int, _frame: FrameType | None) -> None:
        tests.loops = True
        raise LoopsError

    signal.signal(signal.SIGPROF, stop)
    basetemp = f"--basetemp={folder / 'tests'}"
    try:
        try:
            code = int(pytest.main([*QUIET, basetemp, *options, *paths], plugins=[tests]))
        finally:
            signal.signal(signal.SIGPROF, signal.SIG_IGN)
    except BaseException:
        # Stopped once more while it was still telling of the first time, whatever came of that.
        if not tests.loops:
            raise
        code = LOOPS
    signal.setitimer(signal.ITIMER_PROF, 0)
    return LOOPS if tests.loops else code


def outcome_of(tests: Tests, code: int) -> dict[str, Any]:
    """Return how the tests of a mutant ended: code, first failed or looping test, and how many."""
    if code == LOOPS:
        return {"outcome": "loops", "test": tests.running, "tests": len(tests.seconds)}
    if code == pytest.ExitCode.TESTS_FAILED and tests.failed:
        return {"outcome": "killed", "test": tests.failed[0], "tests": len(tests.seconds)}
    if code == pytest.ExitCode.OK and tests.seconds:
        return {"outcome": "survived", "test": "", "tests": len(tests.seconds)}
    return {"outcome": "crashed", "test": f"exit code {code}", "tests": len(tests.seconds)}
