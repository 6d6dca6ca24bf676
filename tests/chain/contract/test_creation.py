"""The block that created a contract is found by asking, where the node still knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pytest

from ledger.chain.contract.deployment import creation_block, deploy
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.ports import ChainUnreachableError, NotServedError
from ledger.io.home import RunPaths
from tests.chain.contract.test_deployment import SMALL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.chain.ports import ChainReader


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedChain, str]]:
    """A contract that block 6 has created."""
    folder = tmp_path_factory.mktemp("creation")
    with EmbeddedChain.create(folder / "chain.sqlite", synchronous="NORMAL") as chain:
        chain.mine(5)
        address = deploy(chain, SMALL, RunPaths(folder)).address
        chain.mine(5)
        yield chain, address


@dataclass
class Forgetful:
    """A chain as a node serves it that has dropped the state before a block.

    Attributes:
        chain: the chain.
        kept_from: the oldest block whose state it has.
        fault: what it says of older ones; None to answer as if there had been nothing.
        asked: how often it was asked.
    """

    chain: EmbeddedChain
    kept_from: int
    fault: NotServedError | None = None
    asked: int = 0

    def call(self, to: str, data: bytes, block_number: int | None = None) -> bytes:
        self.asked += 1
        if block_number is None or block_number >= self.kept_from:
            return self.chain.call(to, data, block_number)
        if self.fault is None:
            return b""
        raise self.fault


def test_the_block_is_found_wherever_the_chain_ends(deployed: tuple[EmbeddedChain, str]) -> None:
    chain, address = deployed
    head = chain.head().number
    assert [creation_block(chain, address, newest) for newest in range(5, head + 1)] == [
        None,
        *[6] * (head - 5),
    ]
    assert creation_block(chain, "0x" + "11" * 20, head) is None


def test_few_blocks_are_looked_at(deployed: tuple[EmbeddedChain, str]) -> None:
    chain, address = deployed
    node = Forgetful(chain, 0)
    assert creation_block(cast("ChainReader", node), address, chain.head().number) == 6
    # 12 blocks or so: the newest, and one for each doubling.
    assert node.asked <= 5


def test_pruned_node_says_nothing_and_an_offline_one_is_none(
    deployed: tuple[EmbeddedChain, str],
) -> None:
    chain, address = deployed
    head = chain.head().number
    pruned = Forgetful(chain, head, NotServedError("missing trie node"))
    assert creation_block(cast("ChainReader", pruned), address, head) is None
    away = Forgetful(chain, head, ChainUnreachableError("nobody answers"))
    with pytest.raises(ChainUnreachableError):
        creation_block(cast("ChainReader", away), address, head)
