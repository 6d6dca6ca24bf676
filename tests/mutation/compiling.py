"""A changed contract compiled, in half of the time that the compiler takes by itself."""

# ruff: noqa: T201 - a program that prints

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

from contracts.build import CONTRACT, EVM_VERSION, HERE, SOURCES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.mutation.mutants import Mutant


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
    except (VyperException, ArithmeticError) as refused:
        # It folds constants with Python's own numbers, and lets their errors through.
        print(refused)
        return None
    finally:
        gc.enable()
    return bytes.fromhex(outputs["bytecode"][2:])


def remember_what_is_optimised() -> None:
    """Let the compiler optimise each expression once; by itself it does so whenever it asks.

    What comes of it depends on the expression and, in sums, on the operator round it. Whoever calls
    this compares what the sources as they are compile to with the committed code.
    """
    from vyper.ir import optimizer

    by_itself, known = optimizer._optimize, dict[tuple[int, Any], tuple[Any, int, Any]]()

    def once(node: Any, parent: Any) -> Any:
        context = parent.value if parent is not None and node.value in optimizer.arith else None
        key = (id(node), context)
        found = known.get(key)
        # The node is kept with it: another one cannot come to lie at its place.
        if found is not None and found[1] == len(node.args):
            return found[2]
        result = by_itself(node, parent)
        known[key] = (node, len(node.args), result)
        return result

    optimizer._optimize = once
