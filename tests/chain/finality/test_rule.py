"""One rule for what is final: finalized, or so many blocks deep."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.finality import final_block
from ledger.chain.rpc.rpc_reader import RpcReader, RpcSettings
from tests.chain.rpc.scripted_node import BLOCK, Fault, ScriptedNode

if TYPE_CHECKING:
    from pathlib import Path


def node(head: int, finalized: int | None) -> ScriptedNode:
    def block(tag: str, _: bool) -> object:
        if tag == "finalized" and finalized is None:
            return Fault(-32602, "unknown tag")
        numbers = {"latest": head, "finalized": finalized}
        number = numbers.get(tag)
        return {**BLOCK, "number": tag if number is None else hex(number)}

    return ScriptedNode(eth_getBlockByNumber=block)


@pytest.mark.parametrize(
    ("head", "finalized", "confirmations", "final"),
    [
        (100, 36, None, 36),
        (100, 36, 12, 88),
        (100, 36, 70, 30),
        (100, 100, 12, 88),
        (100, 100, None, 100),
        (100, None, 12, 88),
        (100, 36, 0, 100),
        (5, 0, 12, 0),
    ],
)
def test_finality_follows_the_chain_or_else_the_given_depth(
    head: int, finalized: int | None, confirmations: int | None, final: int
) -> None:
    settings = RpcSettings(retries=0, confirmations=confirmations or 0)
    with (
        node(head, finalized) as served,
        RpcReader(served.url, chain_id=7, settings=settings) as chain,
    ):
        assert final_block(chain, confirmations).number == final


def test_the_embedded_chain_calls_every_block_finalized(tmp_path: Path) -> None:
    with EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain:
        chain.mine(3)
        assert final_block(chain, None) == chain.head()
        assert final_block(chain, 2) == chain.block(1)


def test_fewer_than_no_confirmations_are_refused(tmp_path: Path) -> None:
    with (
        EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain,
        pytest.raises(ValueError, match="-1 confirmations"),
    ):
        final_block(chain, -1)
