"""Which head stands on which, and how seldom that has to be asked."""

from __future__ import annotations

from ledger.chain.finality import AncestryCheck
from ledger.chain.ports import Block


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
