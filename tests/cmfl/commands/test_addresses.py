"""An address is typed in any case of its letters, and comes out as EIP-55 text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ledger.chain.embedded.embedded_reader import EmbeddedReader
from ledger.chain.rpc.server.http_server import RpcServer
from ledger.io.home import Home
from tests.cmfl.commands.conftest import SHARED, every_command, refusal, succeeds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = SHARED

BY_ADDRESS = {
    name: option
    for name, command in every_command().items()
    for option in ("--address", "--contract")
    if option in command.options
}


@pytest.fixture(scope="module")
def address(home: Path) -> str:
    return str(json.loads(Home(home).run("run").manifest.read_bytes())["address"])


@pytest.mark.parametrize("spelt", [str.lower, str.upper, lambda text: text[2:]])
def test_an_audit_accepts_an_address_in_any_case(
    home: Path, address: str, spelt: Callable[[str], str]
) -> None:
    where = ["audit", "--home", home, "--address", spelt(address), "--jobs", 1, "--json"]
    with EmbeddedReader.open(Home(home).chain) as chain, RpcServer(chain) as server:
        node = ["--rpc-url", server.url, "--chain-id", chain.chain_id]
        for found in (succeeds(*where).json, succeeds(*where, *node).json):
            assert found["outcome"] == "passed", found
            assert found["deployment"]["address"] == address


@pytest.mark.parametrize("command", BY_ADDRESS)
def test_a_wrong_checksum_is_refused_by_every_command(address: str, command: str) -> None:
    for wrong, rule in (
        (f"0x{address[2:].swapcase()}", "its checksum is wrong"),
        (address[:-1], "0x and 40 hex digits"),
    ):
        said = refusal(*command.split(), BY_ADDRESS[command], wrong)
        assert repr(wrong) in said
        assert rule in said


def test_a_manifest_in_lower_case_is_the_same_deployment(copy: Path, address: str) -> None:
    path = Home(copy).run("run").manifest
    path.write_text(path.read_text().replace(address, address.lower()))
    result = succeeds("audit", "--home", copy, "--jobs", 1, "--json")
    assert result.json["deployment"]["address"] == address
