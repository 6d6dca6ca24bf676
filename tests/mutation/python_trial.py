"""Mutants of the protocol and of the audit: what a module's import gives, in a process of its own.

The process that tries them must not have imported anything of `ledger` itself.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections import defaultdict
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.mutation import python_source, testing
from tests.mutation.mutants import named
from tests.mutation.nearest import Measured, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import CodeType, ModuleType

    from tests.mutation.mutants import Mutant
    from tests.mutation.results import Result

ROOT = Path(__file__).parents[2]
MUTATED = ("ledger/protocol", "ledger/audit")
TESTS = ("tests/protocol", "tests/audit")
_SEEN_BY = {"ledger/protocol": TESTS, "ledger/audit": ("tests/audit",)}
# Sentences and tables of names: what they say is read by people and compared by nobody.
LEFT_OUT = ("errors.py", "paper_map.py", "sentences.py", "readable.py")
OTHERS_SECONDS = 20.0


def mutants() -> list[Mutant]:
    """Return all mutants of the protocol and of the audit."""
    found: list[Mutant] = []
    for folder in MUTATED:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.name not in LEFT_OUT:
                source = path.read_bytes()
                name = path.relative_to(ROOT).as_posix()
                found += named(name, source, python_source.edits_of(source))
    return found


class MutatedSource(SourceFileLoader):
    """Loads a module from a mutant's source."""

    def __init__(self, mutant: Mutant) -> None:
        path = ROOT / mutant.path
        parts = Path(mutant.path).with_suffix("").parts
        super().__init__(".".join(part for part in parts if part != "__init__"), str(path))
        self._source = mutant.edit.applied(path.read_bytes())

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - the loader's interface
        """Return the mutant's code; what is cached on the disk is the original's."""
        return compile(self._source, self.path, "exec", dont_inherit=True)


class MutatedModule(MetaPathFinder):
    """Finds one module, before anybody else does."""

    def __init__(self, loader: MutatedSource) -> None:
        self._loader = loader

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's spec with this loader; None for every other module."""
        spec = (
            PathFinder.find_spec(fullname, path, target) if fullname == self._loader.name else None
        )
        if spec is not None:
            spec.loader = self._loader
        return spec


def warm() -> None:
    """Load what every trial needs and is not mutated, once, before it is forked."""
    testing.run(testing.Tests([], 60.0), ["tests/fixtures"], Path("/nonexistent"), "--collect-only")
    # After pytest, which rewrites the assertions of its plugins; nothing of Ethereum, because
    # the protocol chooses for all who hashes.
    for name in ("numpy", "hypothesis.stateful", "coincurve", "msgpack", "json", "sqlite3"):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def measure(folder: Path) -> dict[str, Any]:
    """Run all tests without a mutant; return their times and the lines that each of them runs."""
    tests = testing.Tests(None, 600.0, to_the_end=True)
    data_file = folder / "coverage"
    (folder / "settings").write_text(f"[run]\ndata_file = {data_file}\n", "utf-8")
    options = ["-p", "pytest_cov", "--cov-context=test", "--cov-report="]
    options += [f"--cov={name.replace('/', '.')}" for name in MUTATED]
    options += [f"--cov-config={folder / 'settings'}"]
    code = testing.run(tests, TESTS, folder, *options)
    return {
        "code": code,
        "failed": tests.failed,
        "measured": {
            "seconds": tests.seconds,
            "refusals": {},
            "lines": _lines(data_file) if data_file.exists() else {},
        },
    }


def tried(
    mutant: Mutant, measured: Measured, results: Mapping[str, Result], limit: float, folder: Path
) -> dict[str, Any]:
    """Return what becomes of a mutant: all tests that run its line, and a few others.

    Args:
        mutant: the change.
        measured: all tests.
        results: of earlier mutants.
        limit: seconds of CPU that one test may take.
        folder: a temporary one.

    Raises:
        RuntimeError: this process knows the module already.
    """
    loader = MutatedSource(mutant)
    if loader.name in sys.modules:
        raise RuntimeError(f"{loader.name} is imported already: its mutant would not be")
    sys.meta_path.insert(0, MutatedModule(loader))
    near = measured.lines.get(f"{mutant.path}:{mutant.edit.line}", [])
    near = near or _by_name(measured, mutant)
    order = nearest(measured, near, mutant, results, OTHERS_SECONDS)
    ended: dict[str, Any] = {"tests": 0}
    # One folder after the other, so that whom the quick tests kill need not load the slow ones.
    for folder_of in _SEEN_BY[_root_of(mutant)]:
        picked = [test for test in order if test.startswith(f"{folder_of}/")]
        if picked:
            tests, before = testing.Tests(picked, limit), ended["tests"]
            paths = sorted({test.partition("::")[0] for test in picked})
            code = testing.run(tests, paths, folder, "-p", "no:pytest_cov")
            ended = testing.outcome_of(tests, code)
            ended["tests"] += before
            if ended["outcome"] != "survived":
                break
    return ended


def _root_of(mutant: Mutant) -> str:
    return next(root for root in MUTATED if mutant.path.startswith(f"{root}/"))


def _by_name(measured: Measured, mutant: Mutant) -> list[str]:
    """Return the tests of a module whose changed line runs when it is imported."""
    name = f"test_{Path(mutant.path).stem}.py::"
    return [test for test in measured.seconds if name in test]


def _lines(data_file: Path) -> dict[str, list[str]]:
    from coverage import CoverageData

    data = CoverageData(str(data_file))
    data.read()
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in data.measured_files():
        name = Path(path).relative_to(ROOT).as_posix()
        for line, contexts in data.contexts_by_lineno(path).items():
            tests = {context.rpartition("|")[0] for context in contexts}
            found[f"{name}:{line}"] = sorted(tests - {""})
    return dict(found)
