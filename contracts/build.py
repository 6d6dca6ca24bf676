"""Compile the contract and write the committed artefact: `python -m contracts.build`.

Users need no compiler: ABI, byte code and documentation are in the repository. A test recompiles
and compares. `python -m benchmarks.ledger` writes the costs of transactions to `gas_snapshot.json`,
and another test compares them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ARTIFACT = HERE / "artifacts" / "committee_ledger.json"
CONTRACT = "committee_ledger.vy"
INTERFACE = "ICommitteeLedger.vyi"
SOURCES = (CONTRACT, INTERFACE, "ranking.vy", "ballots.vy")
EVM_VERSION = "cancun"
CODES = {"bytecode": "bytecode", "bytecode_runtime": "deployedBytecode"}
"""The artefact's names of the codes, and the JSON interface's."""


def compiled(folder: Path = HERE) -> dict[str, Any]:
    """Return the artefact that the compiler makes of a folder's sources (needs the dev extra)."""
    from vyper.cli.vyper_json import compile_json  # noqa: PLC0415 - only a developer has it

    made = compile_json(standard_input(folder))["contracts"][CONTRACT][Path(CONTRACT).stem]
    codes = {name: made["evm"][key]["object"] for name, key in CODES.items()}
    return artefact_of({"abi": made["abi"], **codes})


def standard_input(folder: Path = HERE) -> dict[str, Any]:
    """Return sources and settings for the compiler's JSON interface and for block explorers."""
    return {
        "language": "Vyper",
        "sources": {name: {"content": (folder / name).read_text("utf-8")} for name in SOURCES},
        "settings": {
            "evmVersion": EVM_VERSION,
            "optimize": "gas",
            "outputSelection": {CONTRACT: ["abi", *(f"evm.{key}" for key in CODES.values())]},
            "search_paths": ["."],
        },
    }


def artefact_of(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the artefact with these outputs of the compiler (needs the dev extra)."""
    import vyper  # noqa: PLC0415 - only a developer has the compiler
    from vyper.ast.natspec import parse_natspec  # noqa: PLC0415
    from vyper.compiler.input_bundle import FilesystemInputBundle  # noqa: PLC0415
    from vyper.compiler.phases import CompilerData  # noqa: PLC0415

    # The compiler does not hand an interface's documentation on to what implements it.
    bundle = FilesystemInputBundle([HERE])
    interface = CompilerData(bundle.load_file(INTERFACE), bundle)
    documentation = parse_natspec(interface.annotated_vyper_module)
    return {
        "contract": "committee_ledger",
        "compiler": f"vyper {vyper.__version__}",
        "evm_version": EVM_VERSION,
        "optimize": "gas",
        "sources": {
            name: hashlib.sha256((HERE / name).read_bytes()).hexdigest() for name in SOURCES
        },
        **{name: outputs[name] for name in ("abi", *CODES)},
        "userdoc": documentation.userdoc,
        "devdoc": documentation.devdoc,
    }


def main() -> None:
    """Write the artefact."""
    ARTIFACT.parent.mkdir(exist_ok=True)
    ARTIFACT.write_text(json.dumps(compiled(), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
