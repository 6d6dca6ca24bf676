"""What holds for every test: repeatable examples, and no skip that hides a missing part in CI."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tests.audit.runs import Run

ALLOWED_SKIPS = ("CUDA", "shared/data", "shared/paper")
"""What continuous integration need not have: a GPU, the data sets, the paper's source."""

settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("repeatable")


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


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """One honest run for all tests; nobody may change it."""
    from tests.audit.honest import honest_run

    run = honest_run(tmp_path_factory.mktemp("honest"))
    with run.chain:
        yield run
