"""A writer killed at any moment loses no block that it had acknowledged."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.writing import read_note
from ledger.chain.ports import LogQuery
from ledger.chain.rpc.pool import TransactionPool
from tests.chain.probe import TOPIC, deploy, word, words
from tests.chain.rpc.test_transaction_pool import signed


def write(path: Path, probe: str, acknowledge: Callable[[int, int], object]) -> None:
    with EmbeddedChain.open(path) as chain:
        for value in range(1, 10_000):
            receipt = chain.send(probe, words(value, 0), 200_000)
            acknowledge(receipt.block_number, value)


@pytest.mark.parametrize("seed", range(4))
def test_every_acknowledged_block_survives_a_kill(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "chain.sqlite"
    with EmbeddedChain.create(path) as chain:
        probe = deploy(chain)
    acknowledged = run_and_kill(path, probe, random.Random(seed))
    noted = read_note(path)
    assert noted is not None
    assert noted.number >= acknowledged[-1][0]
    with EmbeddedChain.open(path) as chain:
        head = chain.head().number
        last = acknowledged[-1][0]
        assert chain.block(noted.number).hash == noted.hash, "the note is not ahead of the chain"
        assert head in {last, last + 1}, "at most the one block whose word was cut off"
        chain.verify(execute=True)
        values = [log.topics[1] for log in chain.logs(LogQuery(probe, [TOPIC], 0, head))]
        assert values[: len(acknowledged)] == [word(value) for _, value in acknowledged]
        assert chain.call(probe, b"") == values[-1]
        assert chain.send(probe, words(99_999, 0), 200_000).block_number == head + 1


@pytest.mark.parametrize("seed", range(2))
def test_a_block_of_many_survives_a_kill_whole(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "chain.sqlite"
    with EmbeddedChain.create(path) as chain:
        probe = deploy(chain)
    acknowledged = run_and_kill(path, probe, random.Random(seed), program=write_blocks_of_many)
    with EmbeddedChain.open(path) as chain:
        head, last = chain.head().number, acknowledged[-1][0]
        assert head in {last, last + 1}
        chain.verify(execute=True)
        values = [log.topics[1] for log in chain.logs(LogQuery(probe, [TOPIC], 0, head))]
        assert values == [word(value) for value in range(1, 3 * (head - 1) + 1)]


def write_blocks_of_many(path: Path, probe: str, acknowledge: Callable[[int, int], object]) -> None:
    with EmbeddedChain.open(path) as chain:
        pool, value = TransactionPool(chain), 0
        for _ in range(10_000):
            for key in range(3):
                value += 1
                pool.add(signed(chain, key, to=probe, data=words(value, 0), gas=200_000))
            pool.mine()
            acknowledge(chain.head().number, value)


def run_and_kill(
    path: Path,
    probe: str,
    rng: random.Random,
    program: Callable[[Path, str, Callable[[int, int], object]], None] = write,
) -> list[tuple[int, int]]:
    """Return what a writer in a process of its own has acknowledged, killed after some blocks."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            program(path, probe, lambda *said: os.write(writing, b"%d %d\n" % said))
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as lines:
        said = [lines.readline() for _ in range(rng.randint(1, 20))]
        time.sleep(rng.uniform(0, 0.02))  # somewhere in the next block
        os.kill(child, signal.SIGKILL)
        said += lines.readlines()
    os.waitpid(child, 0)
    whole = [line.split() for line in said if line.endswith("\n")]
    return [(int(block), int(value)) for block, value in whole]


def test_a_file_cut_off_during_its_creation_is_created_again(tmp_path: Path) -> None:
    torn, path = tmp_path / "torn.sqlite", tmp_path / "chain.sqlite"
    writing = sqlite3.connect(torn, isolation_level=None)
    # A cache of one page: the file is written, and its journal hot, before the commit.
    writing.executescript("PRAGMA cache_size = 1; BEGIN; CREATE TABLE begun (page BLOB)")
    for _ in range(50):
        writing.execute("INSERT INTO begun VALUES (zeroblob(4000))")
    shutil.copy(torn, path)
    shutil.copy(f"{torn}-journal", f"{path}-journal")
    writing.execute("ROLLBACK")
    writing.close()

    with EmbeddedChain.open_or_create(path) as chain:
        assert chain.head().number == 0
