"""What holds for every test: repeatable examples, and no skip that hides a missing part in CI."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import patch

import pytest
from _pytest.logging import caplog_handler_key
from _pytest.unraisableexception import gc_collect_iterations_key
from hypothesis import HealthCheck, settings

from tests.faults import times

if TYPE_CHECKING:
    from tests.audit.runs import Run
    from tests.processes import Forks

# Before anything imports NumPy or torch: threads that share a small product spin while they wait
# for the next one, and take the cores from the tests beside.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

# What pytest and Python make of modules is kept, also where Python is told to keep nothing: to
# collect all tests takes 8 s of one core instead of 16, and each process that begins spares 0.4 s.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# What tests write lies in memory where there is plenty: they take a twentieth less of a core.
_IN_MEMORY = Path("/dev/shm")
if _IN_MEMORY.is_dir() and shutil.disk_usage(_IN_MEMORY).free > 4 * 2**30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_IN_MEMORY))

ALLOWED_SKIPS = ("CUDA", "shared/data", "shared/paper", "make flower")
"""What continuous integration need not have: a GPU, the data sets, the paper's source, Flower."""

settings.register_profile(
    "repeatable",
    max_examples=times(30, 500),
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("repeatable")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Python ends faster if it does not look for garbage among all that was imported.
    atexit.register(gc.freeze)
    _log_where_it_is_read(config.pluginmanager.get_plugin("logging-plugin"))


def _log_where_it_is_read(plugin: Any) -> None:
    """Attach pytest's handlers to the loggers (torch has 60) only for tests that use `caplog`."""
    attached = plugin._runtest_for

    def attached_if_read(item: pytest.Item, when: str) -> AbstractContextManager[None]:
        item.stash[caplog_handler_key] = plugin.caplog_handler
        is_read = "caplog" in getattr(item, "fixturenames", ())
        return cast("Any", attached(item, when)) if is_read else nullcontext()

    plugin._runtest_for = attached_if_read


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Collect garbage once at the end: pytest would do so again a moment later."""
    config.stash[gc_collect_iterations_key] = 0


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Let `-n` alone mean `--dist loadgroup`."""
    if getattr(config.option, "numprocesses", None) and config.option.dist == "no":
        config.option.dist = "loadgroup"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Run the tests of a module in one process, like those of a group: they share fixtures."""
    from xdist.scheduler import LoadGroupScheduling

    if config.option.dist != "loadgroup":
        return None
    scheduler = LoadGroupScheduling(config, log)
    scope_of = scheduler._split_scope
    scheduler._split_scope = lambda nodeid: scope_of(nodeid).partition("::")[0]
    return scheduler


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while tests are collected: all that is imported stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give one process all modules that fork commands: one server then imports everything."""
    needed = {"forks", "forked_children", "Forks"}
    tests = [item for item in items if isinstance(item, pytest.Function)]
    forking = {one.path for one in tests if needed & {*one.fixturenames, *vars(one.module)}}
    for item in items:
        if item.path in forking and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("processes"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Spare what is imported by now: each collection of garbage would walk through all of it."""
    for plugin in session.config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor":
            plugin.sendevent = partial(_send_what_counts, plugin.sendevent, session.items)
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _send_what_counts(
    send: Callable[..., None], items: list[pytest.Item], name: str, **values: Any
) -> None:
    """Send an event of one of pytest-xdist's processes: two for a test that passes, not six."""
    if name == "collectionfinish":  # pytest 9.2 ignores how pytest-xdist 3.8 names groups
        marks = [item.get_closest_marker("xdist_group") for item in items]
        groups = [f"@{mark.args[0]}" if mark else "" for mark in marks]
        values["ids"] = [f"{item.nodeid}{of}" for item, of in zip(items, groups, strict=True)]
    report = values.get("data", {}) if name == "testreport" else {}
    has_begun_or_ended = report.get("when") in {"setup", "teardown"}
    if name in {"logstart", "logfinish"} or (has_begun_or_ended and report["outcome"] == "passed"):
        return
    send(name, **values)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure where CMFL_NO_SKIP says that all parts are installed."""
    report = yield
    if not (report.skipped and os.environ.get("CMFL_NO_SKIP")) or hasattr(report, "wasxfail"):
        return report
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not any(allowed in reason for allowed in ALLOWED_SKIPS):
        report.outcome = "failed"
        report.longrepr = f"skipped where every system part should be installed: {reason}"
    return report


@pytest.fixture(scope="session", autouse=True)
def _nothing_outlasts_a_power_cut() -> Iterator[None]:
    """Sync nothing in this process; `tests/e2e/power.py` shows what is made durable before what."""
    with patch("os.fsync", lambda _: None):
        yield


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """One honest run for all tests; nobody may change it."""
    from tests.audit.honest import honest_run

    run = honest_run(tmp_path_factory.mktemp("honest"))
    with run.chain:
        yield run


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """What begins `cmfl` in real processes that need not import everything first."""
    from tests.processes import Forks

    with Forks(tmp_path_factory.mktemp("forks")) as begun:
        yield begun


@pytest.fixture
def forked_children(forks: Forks) -> Iterator[None]:
    """Let training workers and pools of this test be forks too: none imports torch by itself."""
    with forks.children():
        yield
