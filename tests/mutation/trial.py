"""One mutant in a process of its own: compiled, put in the artefact's place, and tested."""

# ruff: noqa: T201 - the last line is the answer

from __future__ import annotations

import json
import signal
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from contracts import build
from ledger.chain.contract import abi
from tests.mutation.mutants import Mutant, mutants

CPU_SECONDS_OF_A_TEST = 60.0
OPTIONS = (
    "-q",
    "-p",
    "no:cacheprovider",
    "--no-header",
    "--no-summary",
    # They compare byte code and gas with the committed ones: every mutant would fail there.
    "--ignore=tests/contracts/test_artifact.py",
    "--ignore=tests/contracts/test_gas.py",
)


class Killers:
    """A plugin of pytest: tests that killed mutants go first, and the first failure ends all."""

    def __init__(self, results: Path) -> None:
        """Read the tests that killed mutants before."""
        lines = results.read_text("utf-8").splitlines() if results.exists() else []
        self.kills = Counter(json.loads(line)["test"] for line in lines)
        self.running = self.failed = ""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """Draw few examples, and shrink none."""
        from hypothesis import Phase, settings  # not above: pytest rewrites what it imports itself

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile(
            "mutants", settings.default, max_examples=100, phases=phases, database=None
        )
        settings.load_profile("mutants")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: -self.kills[item.nodeid])

    def pytest_runtest_setup(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS_OF_A_TEST)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid


def compiled(mutant: Mutant | None) -> tuple[bytes, bytes] | None:
    """Return creation and runtime code with a change; None if the compiler refuses it."""
    from vyper.exceptions import VyperException

    with tempfile.TemporaryDirectory() as folder:
        for name in build.SOURCES:
            source = (build.HERE / name).read_bytes()
            if mutant is not None and mutant.path == f"contracts/{name}":
                source = mutant.applied(source)
            (Path(folder) / name).write_bytes(source)
        try:
            made = build.compiled(Path(folder))
        except (VyperException, ArithmeticError):
            # The compiler folds constants with Python's own numbers, and lets their errors through.
            return None
    creation, runtime = (bytes.fromhex(made[name][2:]) for name in ("bytecode", "bytecode_runtime"))
    return creation, runtime


def tried(mutant: Mutant, results: Path) -> dict[str, str]:
    """Return the outcome of a mutant, and the test that killed it."""
    codes, committed = compiled(mutant), abi.artifact()
    if codes is None or codes[0] == committed.bytecode:
        return {"outcome": "not compiled" if codes is None else "same code", "test": ""}
    artifact = replace(committed, bytecode=codes[0], runtime=codes[1])
    vars(abi)["artifact"] = cache(lambda: artifact)
    plugin = Killers(results)
    ended = pytest.main([*OPTIONS, "-x", "tests/contracts"], plugins=[plugin])
    signal.setitimer(signal.ITIMER_PROF, 0)
    if ended == pytest.ExitCode.TESTS_FAILED and plugin.failed:
        return {"outcome": "killed", "test": plugin.failed}
    return {"outcome": "survived" if ended == pytest.ExitCode.OK else "crashed", "test": ""}


if __name__ == "__main__":
    (chosen,) = [mutant for mutant in mutants() if mutant.name == sys.argv[1]]
    print("\n" + json.dumps(tried(chosen, Path(sys.argv[2]))))
