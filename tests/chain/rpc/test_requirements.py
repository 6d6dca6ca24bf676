"""Chains that cannot run the contract are rejected before anything is paid."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.ports import ChainWriter
from ledger.chain.rpc import wire
from ledger.chain.rpc.node import Requirement, RpcReader
from ledger.chain.rpc.rpc_chain import RpcChain
from ledger.chain.rpc.server import RpcServer
from ledger.protocol.errors import ChainError
from tests.chain.rpc.faulty_proxy import FaultyProxy
from tests.chain.rpc.scripted_node import BLOCK, Fault, ScriptedNode
from tests.chain.test_port_contract import ANVIL_KEY, anvil, served
from tests.cmfl.commands.conftest import cmfl, refusal

NUMBER = "0x435f5260205ff3"
PARENT_HASH = "0x600143034060015260215ff3"
DEPLOY = ("deploy", "--preset", "smoke")


def unmet(chain: ChainWriter) -> set[Requirement]:
    assert isinstance(chain, RpcChain)
    return set(chain.unmet_requirements())


def shifted(request: Any, answer: Any) -> Any:
    """Return the answer of a chain whose block.number is another chain's, as on Arbitrum."""
    if request["method"] == "eth_call" and request["params"][0].get("data") == NUMBER:
        answer["result"] = f"0x{int(answer['result'], 16) + 20_000_000:064x}"
    return answer


def other_hashes(request: Any, answer: Any) -> Any:
    """Return the answer of a chain whose blockhash() is not the hash of a block."""
    if request["method"] == "eth_call" and request["params"][0].get("data") == PARENT_HASH:
        answer["result"] = f"0x00{'5c' * 32}"
    return answer


@pytest.mark.parametrize(
    "node",
    [
        served,
        *(
            pytest.param(lambda folder, fork=fork: anvil(folder, "--hardfork", fork), id=fork)
            for fork in ("cancun", "prague")
        ),
    ],
)
def test_a_suitable_chain_meets_every_requirement(
    node: Callable[[Path], Iterator[ChainWriter]], tmp_path: Path
) -> None:
    for chain in node(tmp_path):
        assert unmet(chain) == set(), "before its first block"
        chain.mine(3)
        assert unmet(chain) == set()
        chain.require_suitable(needs_block_hash=True)


@pytest.mark.network
@pytest.mark.parametrize(
    ("options", "missing"),
    [
        (("--hardfork", "shanghai"), {Requirement.CANCUN}),
        (("--hardfork", "london"), {Requirement.CANCUN}),
        (("--gas-limit", "11000000"), {Requirement.BLOCK_GAS}),
    ],
)
def test_a_chain_that_cannot_run_the_contract_is_named(
    tmp_path: Path, options: tuple[str, ...], missing: set[Requirement]
) -> None:
    for chain in anvil(tmp_path, *options):
        assert unmet(chain) == missing
        with pytest.raises(ChainError, match="cannot run the contract") as rejected:
            chain.require_suitable(needs_block_hash=False)
        assert all(f" {requirement}: " in str(rejected.value) for requirement in missing)


@pytest.mark.network
def test_another_block_number_or_hash_in_the_machine_is_named(tmp_path: Path) -> None:
    for chain in anvil(tmp_path):
        chain.mine(2)
        for changed, missing in (
            (shifted, Requirement.BLOCK_NUMBER),
            (other_hashes, Requirement.BLOCK_HASH),
        ):
            with (
                FaultyProxy(str(chain.node), changed=changed) as proxy,
                RpcReader(proxy.url, chain_id=None) as reader,
            ):
                assert set(reader.unmet_requirements()) == {missing}
                with pytest.raises(ChainError, match=f" {missing}: "):
                    reader.require_suitable(needs_block_hash=True)
                if missing is Requirement.BLOCK_HASH:
                    reader.require_suitable(needs_block_hash=False)


@pytest.mark.parametrize("block_seconds", [None, 1000.0])
def test_the_embedded_chains_node_tells_whether_it_mines_at_once(
    block_seconds: float | None, tmp_path: Path
) -> None:
    with (
        EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain,
        RpcServer(chain, block_seconds=block_seconds) as server,
        RpcReader(server.url, chain_id=chain.chain_id) as reader,
    ):
        assert chain.mines_at_once()
        assert reader.mines_at_once() == (block_seconds is None)


@pytest.mark.network
def test_a_chain_is_suitable_also_where_a_block_hash_begins_with_ef(tmp_path: Path) -> None:
    for chain in anvil(tmp_path):
        for _ in range(4000):
            chain.mine(1)
            if chain.head().hash[0] == 0xEF:
                break
        assert chain.head().hash[0] == 0xEF
        assert unmet(chain) == set(), "the hash of the newest block, or of its parent"
        chain.mine(1)
        assert unmet(chain) == set()


def test_a_node_that_fails_otherwise_is_not_called_unsuitable() -> None:
    block = {**BLOCK, "gasLimit": "0x1c9c380"}
    with (
        ScriptedNode(eth_call=Fault(-32601, "no calls here"), eth_getBlockByNumber=block) as node,
        RpcReader(node.url, chain_id=7) as reader,
    ):
        assert reader.unmet_requirements() == {}


def test_a_limited_request_is_no_missing_fork() -> None:
    answers = {"0x00": "0x"}
    limited = Fault(wire.LIMIT_EXCEEDED, "too many requests")
    with (
        ScriptedNode(eth_call=lambda call, _: answers.get(call["data"], limited)) as node,
        RpcReader(node.url, chain_id=7) as reader,
        pytest.raises(wire.RpcFault),
    ):
        reader.unmet_requirements()


@pytest.mark.network
def test_the_commands_name_an_unsuitable_chain_and_pay_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CMFL_PRIVATE_KEY", ANVIL_KEY.hex())
    said = f"cannot run the contract: {Requirement.CANCUN}: "
    for chain in anvil(tmp_path, "--hardfork", "shanghai"):
        assert isinstance(chain, RpcChain)
        node = ("--home", tmp_path / "home", "--rpc-url", str(chain.node), "--chain-id", 31337)
        for command in ((*DEPLOY, "--dry-run"), DEPLOY):
            assert said in refusal(*command, *node)
        result = cmfl("doctor", *node, "--json")
        (row,) = (row for row in result.json if row["check"] == "node")
        assert (result.code, row["ok"], said in row["found"]) == (1, False, True)
        assert chain.nonce(chain.sender, pending=True) == 0
