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
from cmfl.commands.exit_codes import FAILED
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
    """Compare a contract's code with that of this version, and say how to compile it yourself.

    The sources are installed with this program. Plain vyper compiles them to the same bytes.
    Exit code 1: the code, or one of the installed sources, differs.
    """
    from ledger.chain.contract.abi import artifact
    from ledger.chain.contract.deployment import is_published
    from ledger.chain.contract.manifest import read_run_manifest
    from ledger.protocol.errors import ChainError

    expected = artifact()
    target = source.target()
    with target.reader() as chain:
        address = target.address or read_run_manifest(target.run_paths()).address
        code, chain_id = chain.code(address), chain.chain_id
    if not code:
        raise ChainError(f"there is no contract at {address} on chain {chain_id}")
    is_equal, differing = is_published(code), _differing_sources(expected)
    if json:
        print_json(
            {
                "chain_id": chain_id,
                "address": address,
                "is_published_code": is_equal,
                "compiler": expected.compiler,
                "sources": expected.sources,
                "differing_sources": differing,
                "compile": _compile_command(),
                "sha256": _compiled_sha256(expected),
            }
        )
    else:
        _print(f"contract {address} on chain {chain_id}", expected, is_equal=is_equal)
    for name in differing:
        complain(f"{_folder() / name}: is not the source of the published code; reinstall cmfl")
    raise typer.Exit(0 if is_equal and not differing else FAILED)


def _print(which: str, expected: Artifact, *, is_equal: bool) -> None:
    verdict = "has the published code" if is_equal else "does NOT have the published code"
    print_line(f"{which} {verdict}", bold=True)
    print_line(f"compile it yourself, with {expected.compiler} and no options:")
    print_line(f"  pip install {expected.compiler.replace(' ', '==')}")
    print_line(f"  {_compile_command()}")
    print_line(f"  {_compiled_sha256(expected)}  is what it prints for the published code")


def _compile_command() -> str:
    """Return the shell command that compiles the installed sources and hashes the output."""
    return f"vyper -f bytecode,bytecode_runtime {shlex.quote(str(_folder() / SOURCE))} | sha256sum"


def _compiled_sha256(expected: Artifact) -> str:
    """Return the sha256 of what the compiler prints: creation code and runtime code, as lines."""
    lines = f"0x{expected.bytecode.hex()}\n0x{expected.runtime.hex()}\n"
    return hashlib.sha256(lines.encode()).hexdigest()


def _folder() -> Path:
    return Path(str(files("contracts")))


def _differing_sources(expected: Artifact) -> list[str]:
    """Return the installed sources that are not those of the published code."""
    return [
        name
        for name, digest in expected.sources.items()
        if hashlib.sha256((_folder() / name).read_bytes()).hexdigest() != digest
    ]
