"""Mutants of the protocol and of the audit: what a module's import gives, in a process of its own.

The process that tries them must not have imported anything of `ledger` itself.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections import defaultdict
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.mutation import python_source, testing
from tests.mutation.mutants import named
from tests.mutation.nearest import Measured, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import CodeType, ModuleType

    from tests.mutation.mutants import Mutant
    from tests.mutation.results import Result

ROOT = Path(__file__).parents[2]
# In the order in which they are tried: trials of the audit may know the protocol.
ROOTS = ("ledger/protocol", "ledger/audit")
TESTS = ("tests/protocol", "tests/audit")
_SEEN_BY = {"ledger/protocol": TESTS, "ledger/audit": ("tests/audit",)}
# Sentences and tables of names: what they say is read by people and compared by nobody.
SENTENCES = ("errors.py", "sentences.py", "formatting.py", "report_text.py")
LEFT_OUT = ()
# What other tests may take; they see only what runs in a process that is not measured.
OTHERS_SECONDS = 5.0
OF_A_LINE_THAT_NONE_RUNS = 20.0
# Nothing of Ethereum: the protocol chooses for all who hashes.
FOREIGN = ("numpy", "hypothesis.stateful", "coincurve", "msgpack", "json", "sqlite3")
_BESIDES = {
    "ledger/protocol": (),
    "ledger/audit": (
        "ledger.chain.rpc.rpc_reader",
        "ledger.chain.rpc.server.http_server",
        "ledger.distances.fast",
        "tests.audit.forged_chain",
        "tests.audit.honest",
        "tests.contracts.relay",
    ),
}


def sources() -> list[Path]:
    """Return the files that are mutated."""
    found = (path for root in ROOTS for path in sorted((ROOT / root).rglob("*.py")))
    return [path for path in found if path.name not in SENTENCES]


def mutants() -> list[Mutant]:
    """Return all mutants of the protocol and of the audit."""
    found: list[Mutant] = []
    for path in sources():
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


@cache
def warm(root: str) -> None:
    """Load what trials need and is not mutated, once, before they are forked.

    Args:
        root: the folder of the mutants to come; never one that lies before an earlier one's.

    Raises:
        RuntimeError: something that is mutated was loaded.
    """
    testing.run(testing.Tests([], 60.0), ["tests/fixtures"], Path("/nonexistent"), "--collect-only")
    # After pytest, which rewrites the assertions of its plugins.
    for name in (*FOREIGN, *_BESIDES[root]):
        importlib.import_module(name)
    package = root.replace("/", ".")
    known = sorted(name for name in sys.modules if f"{name}.".startswith(f"{package}."))
    if known:
        raise RuntimeError(f"{known[0]} is imported already: its mutants would not be")
    gc.collect()
    gc.freeze()


def measure(paths: Sequence[str], folder: Path) -> dict[str, Any]:
    """Run tests without a mutant; return their times and the lines that each of them runs.

    Args:
        paths: files of tests.
        folder: a temporary one.
    """
    tests = testing.Tests(None, 600.0, to_the_end=True)
    data_file = folder / "coverage"
    (folder / "settings").write_text(f"[run]\ndata_file = {data_file}\n", "utf-8")
    options = ["-p", "pytest_cov", "--cov-context=test", "--cov-report="]
    options += [f"--cov={name.replace('/', '.')}" for name in ROOTS]
    options += [f"--cov-config={folder / 'settings'}"]
    code = testing.run(tests, paths, folder, *options)
    return {
        "code": code,
        "failed": tests.failed,
        "seconds": tests.seconds,
        "refusals": {},
        "lines": _lines(data_file) if data_file.exists() else {},
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
    seconds = OTHERS_SECONDS if near else OF_A_LINE_THAT_NONE_RUNS
    near = near or _by_name(measured, mutant)
    order = nearest(measured, near, mutant, results, seconds)
    ended: dict[str, Any] = {"tests": 0}
    for picked in _batches(order, _SEEN_BY[mutant.root]):
        tests, before = testing.Tests(picked, limit, measured.seconds), ended["tests"]
        paths = sorted({_file(test) for test in picked})
        code = testing.run(tests, paths, folder, "-p", "no:pytest_cov")
        ended = testing.outcome_of(tests, code)
        ended["tests"] += before
        if ended["outcome"] != "survived":
            break
    return ended


def _batches(order: Sequence[str], folders: Sequence[str]) -> Iterator[list[str]]:
    """Yield the tests folder by folder, of each the nearest test's file before all others.

    Whom the first ones kill need not load the rest.
    """
    for folder in folders:
        here = [test for test in order if test.startswith(f"{folder}/")]
        nearest_file = _file(here[0]) if here else ""
        first = [test for test in here if _file(test) == nearest_file]
        others = [test for test in here if _file(test) != nearest_file]
        yield from filter(None, (first, others))


def _file(test: str) -> str:
    return test.partition("::")[0]


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
