"""Mutants of the contract: compiled in memory and put in the place of the committed artefact."""

# ruff: noqa: T201 - a program that prints

from __future__ import annotations

import gc
import re
from collections import defaultdict
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contracts.build import CONTRACT, EVM_VERSION, HERE, SOURCES
from tests.mutation import testing, vyper_source
from tests.mutation.mutants import named
from tests.mutation.nearest import Measured, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.mutation.mutants import Mutant
    from tests.mutation.results import Result

MUTATED = (CONTRACT, "ballots.vy", "ranking.vy")
TESTS = "tests/contracts"
# They compare byte code and gas with what is committed: every mutant would fail there.
LEFT_OUT = (
    "--ignore=tests/contracts/test_artifact.py",
    "--ignore=tests/contracts/test_gas.py",
    "--deselect=tests/contracts/test_rounds.py::"
    "test_the_code_on_chain_is_the_artefact_and_the_immutables",
)
MOST_SECONDS = 600.0


def mutants() -> list[Mutant]:
    """Return all mutants of the contract."""
    found: list[Mutant] = []
    for name in MUTATED:
        source = (HERE / name).read_bytes()
        found += named(f"contracts/{name}", source, vyper_source.edits_of(source))
    return found


def compiled(folder: Path, mutant: Mutant | None) -> bytes | None:
    """Return the creation code, or None if the compiler refuses the mutant.

    Args:
        folder: where to put the sources.
        mutant: the change; None compiles what is there.
    """
    import vyper
    from vyper.compiler.input_bundle import FilesystemInputBundle
    from vyper.compiler.settings import OptimizationLevel, Settings
    from vyper.exceptions import VyperException

    for name in SOURCES:
        source = (HERE / name).read_bytes()
        changed = mutant is not None and mutant.path == f"contracts/{name}"
        (folder / name).write_bytes(mutant.edit.applied(source) if mutant and changed else source)
    bundle = FilesystemInputBundle([folder])
    gc.disable()
    try:
        outputs = vyper.compile_from_file_input(
            bundle.load_file(CONTRACT),
            input_bundle=bundle,
            settings=Settings(evm_version=EVM_VERSION, optimize=OptimizationLevel.GAS),
            output_formats=["bytecode"],
        )
    except VyperException as refused:
        print(refused)
        return None
    finally:
        gc.enable()
    return bytes.fromhex(outputs["bytecode"][2:])


def warm() -> None:
    """Load what every trial needs, once, before it is forked."""
    import vyper  # noqa: F401

    from tests.contracts import twins

    tests = testing.Tests([], 60.0)
    testing.run(tests, [TESTS], Path("/nonexistent"), "--collect-only")
    twins.signers(460)
    gc.collect()
    gc.freeze()


def measure(folder: Path) -> dict[str, Any]:
    """Run all tests without a mutant; return times and the refusals that each test meets."""
    from ledger.chain.contract import abi, reverts

    tests = testing.Tests(None, 600.0, to_the_end=True)
    met: defaultdict[str, set[str]] = defaultdict(set)

    said = abi.revert_reason

    def noted(data: bytes) -> str | None:
        reason = said(data)
        met[reason or ""].add(tests.running)
        return reason

    # The writer reads them by a name of its own; tests of the constructor ask directly.
    for module in (abi, reverts):
        vars(module)["revert_reason"] = noted
    code = testing.run(tests, [TESTS], folder, *LEFT_OUT)
    return {
        "code": code,
        "failed": tests.failed,
        "measured": {
            "seconds": tests.seconds,
            "refusals": {reason: sorted(found) for reason, found in met.items()},
            "lines": {},
        },
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
    tests = testing.Tests(nearest(measured, near, mutant, results, MOST_SECONDS), limit)
    ended = testing.run(tests, [TESTS], folder, *LEFT_OUT)
    return testing.outcome_of(tests, ended)


def _near(measured: Measured, mutant: Mutant) -> list[str]:
    """Return the tests that meet a refusal which the changed line, or what it calls, gives."""
    source = (HERE.parent / mutant.path).read_text("utf-8")
    text = source.splitlines()[mutant.edit.line - 1]
    for name in re.findall(r"self\.(_require\w+)\(", text):
        text += source.partition(f"def {name}(")[2].partition("\n\n\n")[0]
    return [
        test
        for reason, found in measured.refusals.items()
        for test in found
        if f'"{reason}"' in text
    ]
