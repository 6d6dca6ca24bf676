"""Mutants of the contract: compiled in memory and put in the place of the committed artefact."""

from __future__ import annotations

import gc
import re
import tempfile
from collections import defaultdict
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contracts.build import CONTRACT, HERE
from tests.mutation import testing, vyper_source
from tests.mutation.compiling import compiled, remember_what_is_optimised
from tests.mutation.mutants import named
from tests.mutation.nearest import Measured, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.mutation.mutants import Mutant
    from tests.mutation.results import Result

ROOT = HERE.parent
MUTATED = (CONTRACT, "ballots.vy", "ranking.vy")
ROOTS = ("contracts",)
TESTS = ("tests/contracts",)
# They compare byte code and gas with what is committed: every mutant would fail there.
LEFT_OUT = ("tests/contracts/test_artifact.py", "tests/contracts/test_gas.py")
DESELECTED = (
    "--deselect=tests/contracts/test_rounds.py::"
    "test_the_code_on_chain_is_the_artefact_and_the_immutables"
)
MOST_SECONDS = 600.0


def sources() -> list[Path]:
    """Return the files that are mutated."""
    return [HERE / name for name in MUTATED]


def mutants() -> list[Mutant]:
    """Return all mutants of the contract."""
    found: list[Mutant] = []
    for path in sources():
        source = path.read_bytes()
        name = path.relative_to(ROOT).as_posix()
        found += named(name, source, vyper_source.edits_of(source))
    return found


@cache
def warm(root: str) -> None:
    """Load what every trial needs, once, before it is forked.

    Args:
        root: the folder of the mutants to come.

    Raises:
        RuntimeError: the sources as they are do not compile to the committed code.
    """
    from ledger.chain.contract import abi
    from tests.contracts import twins

    remember_what_is_optimised()
    with tempfile.TemporaryDirectory() as folder:
        if compiled(Path(folder), None) != abi.artifact().bytecode:
            raise RuntimeError(f"{root}: the sources do not compile to the committed code")
    tests = testing.Tests([], 60.0)
    testing.run(tests, TESTS, Path("/nonexistent"), "--collect-only")
    twins.signers(460)
    gc.collect()
    gc.freeze()


def measure(paths: Sequence[str], folder: Path) -> dict[str, Any]:
    """Run tests without a mutant; return times and the refusals that each test meets.

    Args:
        paths: files of tests.
        folder: a temporary one.
    """
    from ledger.chain.contract import abi

    tests = testing.Tests(None, 600.0, to_the_end=True)
    met: defaultdict[str, set[str]] = defaultdict(set)

    said = abi.revert_reason

    def noted(data: bytes) -> str | None:
        reason = said(data)
        met[reason or ""].add(tests.running)
        return reason

    vars(abi)["revert_reason"] = noted
    code = testing.run(tests, paths, folder, DESELECTED)
    return {
        "code": code,
        "failed": tests.failed,
        "seconds": tests.seconds,
        "refusals": {reason: sorted(found) for reason, found in met.items()},
        "lines": {},
    }


def tried(
    mutant: Mutant, measured: Measured, results: Mapping[str, Result], limit: float, folder: Path
) -> dict[str, Any]:
    """Return what becomes of a mutant.

    Args:
        mutant: the change.
        measured: all tests.
        results: of earlier mutants.
        limit: seconds of CPU that one test may take.
        folder: a temporary one.
    """
    from ledger.chain.contract import abi

    code = compiled(folder, mutant)
    if code is None:
        return {"outcome": "not compiled", "test": "", "tests": 0}
    committed = abi.artifact()
    if code == committed.bytecode:
        return {"outcome": "same code", "test": "", "tests": 0}
    artifact = replace(committed, bytecode=code)
    # The one seam: whoever deploys or compares code asks for the artefact here.
    abi.artifact = cache(lambda: artifact)
    near = _near(measured, mutant)
    order = nearest(measured, near, mutant, results, MOST_SECONDS)
    tests = testing.Tests(order, limit, measured.seconds)
    left_out = [f"--ignore={name}" for name in LEFT_OUT]
    ended = testing.run(tests, TESTS, folder, DESELECTED, *left_out)
    return testing.outcome_of(tests, ended)


def _near(measured: Measured, mutant: Mutant) -> list[str]:
    """Return the tests that meet a refusal which the changed line, or what it calls, gives."""
    source = (ROOT / mutant.path).read_text("utf-8")
    text = source.splitlines()[mutant.edit.line - 1]
    for name in re.findall(r"self\.(_require\w+)\(", text):
        text += source.partition(f"def {name}(")[2].partition("\n\n\n")[0]
    return [
        test
        for reason, found in measured.refusals.items()
        for test in found
        if f'"{reason}"' in text
    ]
