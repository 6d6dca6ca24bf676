"""The committed artefact is what the committed sources compile to, and describes all of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pytest
from eth_utils.abi import abi_to_signature

from contracts.build import ARTIFACT, HERE, INTERFACE, SOURCES, compiled
from ledger.chain.contract import abi

if TYPE_CHECKING:
    from eth_typing import ABIFunction

ARTEFACT: dict[str, Any] = json.loads(ARTIFACT.read_text("utf-8"))
FUNCTIONS = [entry for entry in ARTEFACT["abi"] if entry["type"] == "function"]


@pytest.mark.slow
def test_recompiling_gives_the_committed_artefact() -> None:
    pytest.importorskip("vyper", reason="the compiler is in the dev extra")
    assert compiled() == ARTEFACT


def test_names_compiler_and_sources() -> None:
    artifact = abi.artifact()
    assert artifact.compiler.startswith("vyper 0.4.3")
    assert set(artifact.sources) == set(SOURCES)
    assert {path.name for path in HERE.glob("*.vy*")} == set(SOURCES)
    # EIP-170, with room for the fourteen immutables.
    assert len(artifact.runtime) + 14 * 32 <= 24_576


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
