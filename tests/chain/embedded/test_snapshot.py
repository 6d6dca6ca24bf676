"""A view of a growing chain is of one state: nothing is missing from it and nothing too much."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.ports import LogQuery
from tests.chain.probe import deploy, word, words

GAS = 200_000


def test_does_not_move_while_blocks_are_added(chain: EmbeddedChain, path: Path) -> None:
    probe = deploy(chain)
    chain.send(probe, words(1, 0), GAS)
    with EmbeddedReader.open(path) as reader:
        with reader.snapshot() as still:
            chain.send(probe, words(2, 0), GAS)
            assert still.head().number == 2
            assert len(still.logs(LogQuery(probe, [], 0, 99))) == 1
            assert still.call(probe, b"") == word(1)
            assert reader.head().number == 3
        assert reader.call(probe, b"") == word(2)


def test_is_given_back_when_it_ends(chain: EmbeddedChain) -> None:
    with chain.snapshot():
        chain.mine(1)
        assert not chain._store.checkpoint(), "the log is needed"
    assert chain._store.checkpoint()
    assert chain.wal_bytes == 0


@pytest.mark.parametrize("opener", ["reader", "writer"])
def test_verifying_a_growing_chain_sees_no_block_that_came_later(
    chain: EmbeddedChain, path: Path, opener: str
) -> None:
    probe = deploy(chain)
    for value in (1, 2, 3):
        chain.send(probe, words(value, 0), GAS)
    seen: list[int] = []

    def grow(number: int) -> None:
        seen.append(number)
        chain.send(probe, words(100 + number, 0), GAS)

    if opener == "writer":
        chain.verify(progress=grow)
    else:
        with EmbeddedReader.open(path) as reader:
            reader.verify(progress=grow)
    assert seen == [0, 1, 2, 3, 4]
    assert chain.head().number == 9
