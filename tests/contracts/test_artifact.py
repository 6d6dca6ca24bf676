"""The committed artefact is what the committed sources compile to, and describes all of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from eth_typing import ABIFunction
from eth_utils.abi import abi_to_signature

from contracts.build import ARTIFACT, HERE, INTERFACE, SOURCES, artefact_of
from ledger.chain.contract import abi
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.io.home import Home
from tests.cmfl.commands.conftest import cmfl
from tests.patience import PATIENCE_SECONDS

ARTEFACT: dict[str, Any] = json.loads(ARTIFACT.read_text("utf-8"))
FUNCTIONS = [entry for entry in ARTEFACT["abi"] if entry["type"] == "function"]


@pytest.mark.slow
def test_recompiling_gives_the_committed_artefact(tmp_path: Path) -> None:
    """By the command that `cmfl contract verify` prints, and with the digest beside it."""
    pytest.importorskip("vyper", reason="the compiler is in the dev extra")
    home = Home(tmp_path / "home")
    home.path.mkdir()
    with EmbeddedChain.create(home.chain) as chain:
        code = bytes.fromhex("60016000f3")  # creates a contract of one zero byte
        address = chain.create_contract(code, 100_000, chain.next_nonce()).contract_address
    printed = cmfl("contract", "verify", "--home", home.path, "--address", address, "--json").json
    # One compilation is enough for both: plain vyper, asked for the ABI too.
    vyper = Path(sys.executable).with_name("vyper")
    outputs = tmp_path / "outputs"
    wrapper = f'vyper() {{ {vyper} -f "abi,$2" "${{@:3}}" | tee {outputs} | tail -n +2; }}'
    ended = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {wrapper}; {printed['compile']}"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    assert ended.stdout.split()[0] == printed["sha256"]
    interface, creation, runtime = outputs.read_text().splitlines()
    compiled = {"abi": json.loads(interface), "bytecode": creation, "bytecode_runtime": runtime}
    assert artefact_of(compiled) == ARTEFACT


def test_names_compiler_and_sources() -> None:
    artifact = abi.artifact()
    assert artifact.compiler.startswith("vyper 0.4.3")
    assert set(artifact.sources) == set(SOURCES)
    assert {path.name for path in HERE.glob("*.vy*")} == set(SOURCES)
    # EIP-170, with room for the fifteen immutables.
    assert len(artifact.runtime) + 15 * 32 <= 24_576


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda entry: entry["name"])
def test_every_function_argument_and_result_is_described(function: dict[str, Any]) -> None:
    signature = abi_to_signature(cast("ABIFunction", function))
    assert ARTEFACT["userdoc"]["methods"][signature]["notice"]
    described = ARTEFACT["devdoc"]["methods"].get(signature, {})
    assert set(described.get("params", {})) == {entry["name"] for entry in function["inputs"]}
    assert len(described.get("returns", {})) == len(function["outputs"])


def test_every_struct_and_event_of_the_interface_is_described() -> None:
    # The compiler takes no docstring there, so a comment has to do.
    paragraphs = (HERE / INTERFACE).read_text("utf-8").split("\n\n\n")
    declared = [text for text in paragraphs if "\nstruct " in text or "\nevent " in text]
    assert len(declared) == 7 + 7
    assert all(text.startswith("# @notice ") for text in declared)
