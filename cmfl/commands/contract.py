"""`cmfl contract`: the contract's interface, and whether a deployed one has its published code."""

from __future__ import annotations

import hashlib
import json as json_
import shlex
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cmfl.commands.console import AsJson, complain, print_json, print_line
from cmfl.commands.exit_codes import FAILED, INCOMPLETE
from cmfl.commands.option_groups import expand_groups
from cmfl.commands.source_options import ContractOptions
from cmfl.commands.streams import results

if TYPE_CHECKING:
    from ledger.chain.contract.abi import Artifact

SOURCE = "committee_ledger.vy"

app = typer.Typer(
    help="The contract: its interface, and whether its code is the published one.",
    no_args_is_help=True,
)


@app.command("abi")
def abi() -> None:
    """Print the contract's ABI as JSON, as wallets, explorers and libraries read it."""
    from ledger.chain.contract.abi import artifact

    results().write(json_.dumps([*artifact().abi.values()], indent=1) + "\n")


@app.command("verify")
@expand_groups
def verify(source: ContractOptions, json: AsJson = False) -> None:
    """Compare a contract's code and creation with this version, and print how to compile it.

    The sources are installed with this program. Plain vyper compiles them to the same bytes.
    Exit code 1: code, creation or an installed source differs. 3: the creation is not checkable.
    """
    from ledger.chain.contract.abi import artifact
    from ledger.chain.contract.deploy import code_violation, is_published
    from ledger.chain.contract.ledger import CommitteeLedger
    from ledger.chain.contract.manifest import read_run_manifest
    from ledger.chain.ports import UncheckableCreationError
    from ledger.protocol.errors import ChainError

    expected = artifact()
    target = source.target()
    with target.reader() as chain:
        address = target.address or read_run_manifest(target.run_paths()).address
        code, chain_id = chain.code(address), chain.chain_id
        if not code:
            raise ChainError(f"there is no contract at {address} on chain {chain_id}")
        violation: str | None = "its code is not the artefact's"
        unchecked: str | None = None
        if is_published(code):
            ledger = CommitteeLedger(chain, address)
            try:
                violation = code_violation(ledger, ledger.deployment(), ledger.domain())
            except UncheckableCreationError as error:
                violation, unchecked = None, str(error)
    is_equal, differing = violation is None, differing_sources(expected)
    if json:
        print_json(
            {
                "chain_id": chain_id,
                "address": address,
                "is_published_code": is_equal,
                "violation": violation,
                "unchecked": unchecked,
                "compiler": expected.compiler,
                "sources": expected.sources,
                "differing_sources": differing,
                "compile": _compile_command(),
                "sha256": _compiled_sha256(expected),
            }
        )
    else:
        _print(f"contract {address} on chain {chain_id}", expected, violation, unchecked)
    for name in differing:
        complain(f"{_folder() / name}: is not the source of the published code; reinstall cmfl")
    if violation or differing:
        raise typer.Exit(FAILED)
    raise typer.Exit(INCOMPLETE if unchecked else 0)


def _print(which: str, expected: Artifact, violation: str | None, unchecked: str | None) -> None:
    verdict = f"does NOT have the published code: {violation}"
    if violation is None:
        verdict = f"has the published code; {unchecked}" if unchecked else "has the published code"
    print_line(f"{which} {verdict}", bold=True)
    print_line(f"compile it yourself, with {expected.compiler} and no options:")
    print_line(f"  pip install {expected.compiler.replace(' ', '==')}")
    print_line(f"  {_compile_command()}")
    print_line(f"  {_compiled_sha256(expected)}  is what it prints for the published code")


def _compile_command() -> str:
    return f"vyper -f bytecode,bytecode_runtime {shlex.quote(str(_folder() / SOURCE))} | sha256sum"


def _compiled_sha256(expected: Artifact) -> str:
    """Return the sha256 of what the compiler prints: creation code and runtime code, as lines."""
    lines = f"0x{expected.bytecode.hex()}\n0x{expected.runtime.hex()}\n"
    return hashlib.sha256(lines.encode()).hexdigest()


def _folder() -> Path:
    return Path(str(files("contracts")))


def differing_sources(expected: Artifact) -> list[str]:
    """Return the sources beside the artefact that are not those it was compiled from."""
    return [
        name
        for name, digest in expected.sources.items()
        if hashlib.sha256((_folder() / name).read_bytes()).hexdigest() != digest
    ]
