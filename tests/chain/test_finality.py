"""What is final, and the memory of it: a chain that has taken back what was acted on is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.finality import AncestryCheck, FinalityCheckpoints, _thinned, final_block
from ledger.chain.ports import Block, NotServedError, ReorganisedError, WrongChainError
from ledger.chain.rpc.node import RpcReader, RpcSettings
from ledger.chain.rpc.rpc_chain import RpcChain
from ledger.io.parsing import MAX_RECORD_BYTES
from ledger.protocol.errors import ChainError
from tests.chain.rpc.scripted_node import BLOCK, Fault, ScriptedNode
from tests.chain.test_port_contract import anvil
from tests.chain.web3_provider import transport_to


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "acted-on.json"


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[EmbeddedChain]:
    with EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain:
        chain.mine(4)
        yield chain


def test_what_was_acted_on_is_found_again(path: Path, chain: EmbeddedChain) -> None:
    acted = FinalityCheckpoints(path, chain)
    assert acted.newest is None
    acted.require_unchanged(chain)
    acted.note(chain.block(2))
    acted.note(chain.block(4))
    again = FinalityCheckpoints(path, chain)
    assert again.newest == 4
    chain.mine(3)
    again.require_unchanged(chain)


def test_a_restored_older_copy_is_noticed_even_after_growth(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "chain.sqlite"
    with EmbeddedChain.create(file, synchronous="NORMAL") as chain:
        chain.mine(2)
    shutil.copy(file, tmp_path / "backup")
    with EmbeddedChain.open(file, synchronous="NORMAL") as chain:
        acted = FinalityCheckpoints(path, chain)
        acted.note(chain.block(2))
        chain.send(chain.sender, b"", 30_000)
        acted.note(then := chain.head())
    shutil.copy(tmp_path / "backup", file)
    with EmbeddedChain.open(file, synchronous="NORMAL", accept_rollback=True) as chain:
        with pytest.raises(NotServedError) as behind:
            acted.require_unchanged(chain)
        assert "ends with block 2, but block 3 0x" in str(behind.value)
        chain.mine(2)
        with pytest.raises(ReorganisedError) as caught:
            acted.require_unchanged(chain)
        error = caught.value
        assert (error.block_number, error.unchanged_up_to) == (3, 2)
        assert (error.hash_then, error.hash_now) == (then.hash, chain.block(3).hash)
        assert f"block 3 was 0x{then.hash.hex()}" in str(error)
        assert f"is 0x{chain.block(3).hash.hex()} now" in str(error)
        with pytest.raises(ReorganisedError):
            acted.note(chain.block(3))
        assert acted.accept(chain) == [3]
        acted.require_unchanged(chain)
        assert FinalityCheckpoints(path, chain).newest == 2
        assert acted.accept(chain) == []


@pytest.mark.network
def test_anvil_that_reorganises_more_deeply_than_the_confirmations(
    path: Path, tmp_path: Path
) -> None:
    for chain in anvil(tmp_path):
        assert isinstance(chain, RpcChain)
        chain.mine(6)
        acted = FinalityCheckpoints(path, chain)
        acted.note(final_block(chain, 2))
        acted.note(chain.block(5))
        transport = transport_to(chain)
        transport.ask("anvil_reorg", 1, [])
        acted.require_unchanged(chain)
        transport.ask("anvil_reorg", 4, [])
        with pytest.raises(ReorganisedError) as caught:
            acted.require_unchanged(chain)
        assert (caught.value.block_number, caught.value.unchanged_up_to) == (4, 0)


def test_what_is_noted_block_by_block_comes_of_age() -> None:
    blocks: dict[int, bytes] = {}
    for newest in range(1, 3000):
        blocks = _thinned({**blocks, newest: newest.to_bytes(32)})
        assert len(blocks) <= 16 + 12
        ages = [newest - number for number in blocks]
        assert max(ages) >= (newest - 1) // 4
        for age in (2**power for power in range(10) if 2 ** (power + 2) < newest):
            assert any(age <= one <= 4 * age for one in ages), (newest, age)


@pytest.mark.parametrize(
    ("damage", "fact"),
    [
        (b"{", "not JSON"),
        (b"[]", "does not have the fields"),
        (b'{"format": 1, "format": 1}', "a key twice"),
        (b"\xff", "not JSON"),
        (b" " * (MAX_RECORD_BYTES + 1), f"over {MAX_RECORD_BYTES} bytes"),
    ],
)
def test_a_damaged_file_is_refused(
    path: Path, chain: EmbeddedChain, damage: bytes, fact: str
) -> None:
    path.write_bytes(damage)
    with pytest.raises(ChainError, match=fact):
        FinalityCheckpoints(path, chain)


@pytest.mark.parametrize(
    ("name", "value", "fact"),
    [
        ("format", 9, "format 9 is not 1"),
        ("genesis_hash", "0x12", "'0x12' is not a hash of 32 bytes"),
        ("blocks", {"01": "0x" + "00" * 32}, "'01' is not a block number"),
        ("blocks", {"1": 5}, "'5' is not a hash"),
    ],
)
def test_a_field_that_is_none_is_refused(
    path: Path, chain: EmbeddedChain, name: str, value: object, fact: str
) -> None:
    FinalityCheckpoints(path, chain).note(chain.head())
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    with pytest.raises(ChainError, match=fact):
        FinalityCheckpoints(path, chain)


def test_a_file_of_another_chain_is_refused(
    path: Path, chain: EmbeddedChain, tmp_path: Path
) -> None:
    FinalityCheckpoints(path, chain).note(chain.head())
    with (
        EmbeddedChain.create(tmp_path / "other.sqlite", chain_id=7) as other,
        pytest.raises(WrongChainError, match="has chain id 7, expected"),
    ):
        FinalityCheckpoints(path, other)
    with (
        EmbeddedChain.create(tmp_path / "twin.sqlite", clock=lambda: 1.0) as twin,
        pytest.raises(WrongChainError, match="begins with block"),
    ):
        FinalityCheckpoints(path, twin)


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


def block(number: int, branch: str = "a", parent: str | None = None) -> Block:
    before = branch if parent is None else parent
    return Block(number, f"{branch}{number}".encode(), f"{before}{number - 1}".encode(), number)


class Chain:
    """Blocks by number, and which of them were asked for."""

    def __init__(self) -> None:
        self.blocks = {number: block(number) for number in range(10)}
        self.asked: list[int] = []

    def block(self, number: int) -> Block:
        self.asked.append(number)
        return self.blocks[number]


def test_block_descends_from_itself_and_its_parent_without_a_query() -> None:
    chain = Chain()
    lineage = AncestryCheck(chain.block)
    assert lineage.connects(block(4), block(4))
    assert lineage.connects(block(4), block(5))
    assert not lineage.connects(block(4), block(3)), "it ends before"
    assert not lineage.connects(block(4), block(4, "b")), "it has another in that place"
    assert chain.asked == []


def test_across_blocks_the_older_one_is_queried_once_for_all() -> None:
    chain = Chain()
    lineage = AncestryCheck(chain.block)
    for _ in range(3):
        assert lineage.connects(block(4), block(7))
    assert chain.asked == [4]
    chain.blocks[4] = block(4, "b")
    for _ in range(3):
        assert not lineage.connects(block(4), block(8))
    assert chain.asked == [4, 4]
    assert lineage.connects(block(3), block(8))
    assert chain.asked == [4, 4, 3]
