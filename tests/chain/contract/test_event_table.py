"""Verified events in a file: a restart reads new blocks, and a false row is found."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.generated_rounds import ChainSizes, GeneratedChain
from ledger.chain.contract.committee_ledger import CommitteeLedger
from ledger.chain.contract.complete_log import CompleteLog, EventTable
from ledger.chain.ports import IncompleteLogsError, Log
from tests.audit.forged_chain import ForgedChain


class Node(ForgedChain):
    """A chain that notes the ranges of blocks whose logs it was asked for."""

    def __init__(self, chain: GeneratedChain) -> None:
        super().__init__(chain, shown="http://node")
        self.asked: list[tuple[int, int]] = []

    def logs(self, address, topics, from_block, to_block, *rest, **options):  # type: ignore[no-untyped-def]
        self.asked.append((from_block, to_block))
        return super().logs(address, topics, from_block, to_block, *rest, **options)


@pytest.fixture
def chain() -> GeneratedChain:
    chain = GeneratedChain(ChainSizes())
    chain.register()
    chain.play(10)
    return chain


@pytest.fixture
def table(tmp_path: Path, chain: GeneratedChain) -> Path:
    """Return a file that an earlier process has left."""
    path = tmp_path / "event_log.sqlite"
    assert read(chain, path) == (all_logs(chain), [(1, chain.head().number)])
    return path


def all_logs(chain: GeneratedChain) -> list[Log]:
    return chain.logs(None, [], 0, chain.head().number)


def ledger_at(node: Node) -> CommitteeLedger:
    return CommitteeLedger(node, node.chain.ledger.address, 1)  # type: ignore[attr-defined]


def read(chain: GeneratedChain, path: Path) -> tuple[list[Log], list[tuple[int, int]]]:
    """Return the logs that a new process reads, and the ranges for which it asks the node."""
    node = Node(chain)
    seen = CompleteLog(EventTable(path)).up_to(ledger_at(node))
    return seen.chain.logs(seen.address, [], 0, chain.head().number), node.asked


def change(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as base, base:
        base.execute(statement, values)


def rows(path: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as base:
        return base.execute("SELECT * FROM events ORDER BY contract, block, log_index").fetchall()


def test_a_restart_reads_new_blocks_only(chain: GeneratedChain, table: Path) -> None:
    newest = chain.head().number
    assert read(chain, table) == (all_logs(chain), [])
    chain.play(3)
    assert read(chain, table) == (all_logs(chain), [(newest + 1, chain.head().number)])
    assert read(chain, table)[1] == []


@pytest.mark.parametrize("depth", [1, 7, 1_000])
def test_a_reorganisation_cuts_the_table_back(
    chain: GeneratedChain, table: Path, depth: int
) -> None:
    common = max(0, chain.head().number - depth)
    other = chain.fork(common, seed=7)
    if common == 0:
        other = GeneratedChain(ChainSizes())
        other.mine()
        other.register()
    other.play(5)
    for path in (table, table):
        logs, asked = read(other, path)
        assert logs == all_logs(other)
        assert all(first > common for first, _ in asked)
        assert len(rows(table)) == len(logs) + 1


def test_a_running_reader_is_cut_back_as_the_chain_is(chain: GeneratedChain, table: Path) -> None:
    log, node = CompleteLog(EventTable(table)), Node(chain)
    log.up_to(ledger_at(node))
    shorter = chain.fork(chain.head().number - 4, seed=8)
    for branch in (shorter, chain, shorter):
        node.chain = branch
        seen = log.up_to(ledger_at(node))
        assert seen.chain.logs(seen.address, [], 0, branch.head().number) == all_logs(branch)
        assert read(branch, table)[0] == all_logs(branch)


FALSE = [
    "DELETE FROM events WHERE block = 5",
    "DELETE FROM events WHERE log_index = -1",
    "UPDATE events SET data = zeroblob(length(data)) WHERE block = 5",
    "UPDATE events SET topics = x'00' WHERE block = 5",
    "UPDATE events SET data = 'text' WHERE block = 5",
    "UPDATE events SET block = 4000000 WHERE block = 5",
    "UPDATE events SET block = -5 WHERE block = 5",
    "UPDATE events SET block = NULL WHERE block = 5",
    "UPDATE events SET block = 'five' WHERE log_index = -1",
    "UPDATE events SET block_hash = 5 WHERE log_index = -1",
    "UPDATE events SET block = 3 WHERE log_index = -1",
    "UPDATE events SET data = zeroblob(500000) WHERE block IN (3, 4, 5)",
    "INSERT INTO events SELECT contract, block, 9, block_hash, transaction_hash, topics, data "
    "FROM events WHERE block = 5",
]


@pytest.mark.parametrize("statement", FALSE)
def test_a_false_row_is_found_and_replaced(
    chain: GeneratedChain, table: Path, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.chain.contract.complete_log.MAX_KEPT_BYTES", 2**20)
    before = rows(table)
    change(table, statement)
    logs, asked = read(chain, table)
    assert logs == all_logs(chain)
    assert asked[-1] == (1, chain.head().number)
    assert rows(table) == before


def test_rows_under_another_contracts_name_are_not_believed(
    chain: GeneratedChain, table: Path
) -> None:
    other = GeneratedChain(ChainSizes(), seed=3)
    other.register()
    other.play(chain.state.round)
    name = f"{other.chain_id}-{other.genesis_hash.hex()}-{other.ledger.address}"
    change(table, "UPDATE events SET contract = ?", name)
    assert read(other, table)[0] == all_logs(other)
    assert len(rows(table)) == len(all_logs(other)) + 1


@pytest.mark.parametrize("content", ["text", "view", "other table", "cut off"])
def test_a_file_of_something_else_is_neither_used_nor_changed(
    chain: GeneratedChain, table: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    if content == "text":
        table.write_bytes(b"something of mine" * 100)
    elif content == "cut off":
        table.write_bytes(table.read_bytes()[:5_000])
    elif content == "view":
        change(table, "CREATE VIEW more AS SELECT * FROM events")
    else:
        table.unlink()
        change(table, "CREATE TABLE mine (word TEXT)")
    before = table.read_bytes()
    log, node = CompleteLog(EventTable(table)), Node(chain)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            log.up_to(ledger_at(node))
            chain.play(1)
    assert [str(table) in record.message for record in caplog.records] == [True]
    assert table.read_bytes() == before


def test_two_readers_share_a_file(chain: GeneratedChain, table: Path) -> None:
    logs = [CompleteLog(EventTable(table)) for _ in range(2)]
    for turn in (0, 1, 1, 0, 0, 1):
        chain.play(1)
        logs[turn].up_to(ledger_at(Node(chain)))
        assert len(rows(table)) == len(all_logs(chain)) + 1
    logs[0].up_to(ledger_at(Node(chain)))
    assert read(chain, table)[1] == []


def test_a_locked_file_does_not_stop_a_reader(
    chain: GeneratedChain, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.chain.contract.complete_log._BUSY_SECONDS", 0.1)
    with closing(sqlite3.connect(table, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert read(chain, table)[0] == all_logs(chain)


def test_a_node_that_leaves_logs_out_is_still_found(chain: GeneratedChain, table: Path) -> None:
    before = rows(table)
    chain.play(1)
    node = Node(chain)
    node.logs_of = lambda logs: [log for log in logs if log.block_number < chain.head().number]
    log = CompleteLog(EventTable(table))
    for _ in range(2):
        with pytest.raises(IncompleteLogsError):
            log.up_to(ledger_at(node))
    assert rows(table) == before
