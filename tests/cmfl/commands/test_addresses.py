"""An address is typed in any case of its letters, and comes out as EIP-55 text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import httpx
import pytest
import typer

from api.settings import Settings
from cmfl.commands.application import app
from ledger.chain.contract.committee_ledger import CommitteeLedger
from ledger.chain.embedded.embedded_reader import EmbeddedReader
from ledger.chain.rpc.server.http_server import RpcServer
from ledger.io.home import Home
from ledger.protocol.ledger_state import RoundDecided
from tests.api.conftest import serving
from tests.cmfl.commands.conftest import SHARED, cmfl, first_decided, refusal, succeeds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = SHARED

SPELLINGS: dict[str, Callable[[str], str]] = {
    "lower": str.lower,
    "upper": lambda address: f"0x{address[2:].upper()}",
    "upper prefix": str.upper,
    "no prefix": lambda address: address[2:],
}


@dataclass(frozen=True)
class Places:
    """A run at home and behind a node, and the options that lead to its chain."""

    home: Path
    address: str
    options: dict[str, list[object]]
    round: int
    client: int


@pytest.fixture(scope="module")
def places(home: Path) -> Iterator[Places]:
    address = json.loads(Home(home).run("run").manifest.read_bytes())["address"]
    with EmbeddedReader.open(Home(home).chain) as chain, RpcServer(chain) as server:
        node = ["--home", home, "--rpc-url", server.url, "--chain-id", chain.chain_id]
        number = first_decided(home)
        events = [one.event for one in CommitteeLedger(chain, address).round_events(number)]
        [decided] = [event for event in events if isinstance(event, RoundDecided)]
        options = {"home": ["--home", home], "node": node}
        yield Places(home, address, options, number, decided.accepted[0])


@pytest.fixture(scope="module")
def http(places: Places) -> Iterator[httpx.Client]:
    _, _, _, url, _, chain_id = places.options["node"]
    with serving(Settings(home=places.home, rpc_url=str(url), chain_id=int(str(chain_id)))) as http:
        yield http


@pytest.mark.parametrize(("chain", "name"), [("home", "upper prefix"), ("node", "lower")])
def test_an_audit_accepts_an_address_in_any_case(places: Places, chain: str, name: str) -> None:
    typed, where = SPELLINGS[name](places.address), places.options[chain]
    result = succeeds("audit", *where, "--address", typed, "--jobs", 1, "--json")
    found = result.json
    assert found["outcome"] == "passed", found
    assert found["deployment"]["address"] == places.address


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_service_over_a_node_accepts_addresses_in_any_case(
    places: Places, http: httpx.Client, name: str
) -> None:
    typed = SPELLINGS[name](places.address)
    [chain] = http.get("/v1/chains").json()["chains"]
    deployments = f"/v1/chains/{chain['name']}/deployments"
    response = http.get(f"{deployments}/{typed}")
    if name == "no prefix":  # a path has one
        assert response.status_code == 422
        return
    assert response.json()["address"] == places.address
    for path in ("", f"/proof/{places.client}", "/votes"):
        found, same = (
            http.get(f"{deployments}/{address}/rounds/{places.round}{path}")
            for address in (typed, places.address)
        )
        assert found.status_code == same.status_code == httpx.codes.OK, found.text
        assert found.json() == same.json()


@cache
def commands() -> dict[str, str]:
    """Return the option by which each command takes a contract's address."""
    found, waiting = {}, [("", typer.main.get_command(app))]
    while waiting:
        name, command = waiting.pop()
        for below, one in getattr(command, "commands", {}).items():
            waiting.append((f"{name} {below}".strip(), one))
        for parameter in command.params:
            if {"--address", "--contract"} & set(parameter.opts):
                found[name] = parameter.opts[0]
    return found


@pytest.mark.parametrize("command", sorted(commands()))
def test_a_wrong_checksum_is_refused_by_every_command(places: Places, command: str) -> None:
    option = commands()[command]
    for wrong, rule in (
        (f"0x{places.address[2:].swapcase()}", "its checksum is wrong"),
        (places.address[:-1], "0x and 40 hex digits"),
    ):
        said = refusal(*command.split(), option, wrong)
        assert repr(wrong) in said
        assert rule in said


def test_a_manifest_in_lower_case_is_the_same_deployment(copy: Path) -> None:
    path = Home(copy).run("run").manifest
    found = json.loads(path.read_bytes())
    path.write_text(json.dumps(found | {"address": found["address"].lower()}))
    result = cmfl("audit", "--home", copy, "--jobs", 1, "--json")
    assert result.code == 0, result
    assert result.json["deployment"]["address"] == found["address"]
