"""A whole log, in memory and in its table: what is left out is noticed, and a fork is no lie."""

from __future__ import annotations

import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import pytest

from benchmarks.generated_rounds import GeneratedChain
from ledger.chain.contract.deploy import deployment_for
from ledger.chain.contract.event_log import (
    ATTEMPTS,
    EventLog,
    EventTable,
    complete_ledger,
    storage_difference,
    view_after,
)
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.memory import MemoryLedger
from ledger.chain.ports import (
    ChainMovedError,
    ChainReader,
    IncompleteLogsError,
    Log,
    LogQuery,
    NotServedError,
)
from ledger.chain.round_ledger import RecordedEvent
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.encoding import sha256
from ledger.protocol.ledger_state import LedgerView
from tests.actors.branching import SHORT
from tests.actors.support import LAYOUT, registry_of
from tests.audit.forged_chain import ForgedChain, forged
from tests.audit.runs import Run
from tests.support.keys import DOMAIN


class Node(ForgedChain):
    """A chain that notes the ranges of blocks whose logs it was asked for."""

    def __init__(self, chain: GeneratedChain) -> None:
        super().__init__(chain, node="http://node")
        self.asked: list[tuple[int, int]] = []

    def logs(self, query: LogQuery) -> list[Log]:
        self.asked.append((query.first, query.last))
        return super().logs(query)


@pytest.fixture
def chain() -> GeneratedChain:
    chain = GeneratedChain()
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
    return chain.logs(LogQuery(None, [], 0, chain.head().number))


def ledger_at(node: Node) -> CommitteeLedger:
    return CommitteeLedger(node, node.chain.ledger.address, 1)  # type: ignore[attr-defined]


def read(chain: GeneratedChain, path: Path) -> tuple[list[Log], list[tuple[int, int]]]:
    """Return the logs that a new process reads, and the ranges for which it asks the node."""
    node = Node(chain)
    seen = EventLog(EventTable(path)).up_to(ledger_at(node))
    return seen.chain.logs(LogQuery(seen.address, [], 0, chain.head().number)), node.asked


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
        other = GeneratedChain()
        other.mine()
        other.register()
    other.play(5)
    for path in (table, table):
        logs, asked = read(other, path)
        assert logs == all_logs(other)
        assert all(first > common for first, _ in asked)
        assert len(rows(table)) == len(logs) + 1


def test_a_running_reader_is_cut_back_as_the_chain_is(chain: GeneratedChain, table: Path) -> None:
    log, node = EventLog(EventTable(table)), Node(chain)
    log.up_to(ledger_at(node))
    shorter = chain.fork(chain.head().number - 4, seed=8)
    for branch in (shorter, chain, shorter):
        node.chain = branch
        seen = log.up_to(ledger_at(node))
        assert seen.chain.logs(LogQuery(seen.address, [], 0, branch.head().number)) == all_logs(
            branch
        )
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
    monkeypatch.setattr("ledger.chain.contract.event_log.MAX_KEPT_BYTES", 2**20)
    before = rows(table)
    change(table, statement)
    logs, asked = read(chain, table)
    assert logs == all_logs(chain)
    assert asked[-1] == (1, chain.head().number)
    assert rows(table) == before


def test_rows_under_another_contracts_name_are_not_believed(
    chain: GeneratedChain, table: Path
) -> None:
    other = GeneratedChain(seed=3)
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
    log, node = EventLog(EventTable(table)), Node(chain)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            log.up_to(ledger_at(node))
            chain.play(1)
    assert [str(table) in record.message for record in caplog.records] == [True]
    assert table.read_bytes() == before


def test_a_locked_file_does_not_stop_a_reader(
    chain: GeneratedChain, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.chain.contract.event_log._BUSY_SECONDS", 0.1)
    with closing(sqlite3.connect(table, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert read(chain, table)[0] == all_logs(chain)


def test_a_node_that_leaves_logs_out_is_still_found(chain: GeneratedChain, table: Path) -> None:
    before = rows(table)
    chain.play(1)
    node = Node(chain)
    node.logs_of = lambda logs: [log for log in logs if log.block_number < chain.head().number]
    log = EventLog(EventTable(table))
    for _ in range(2):
        with pytest.raises(IncompleteLogsError):
            log.up_to(ledger_at(node))
    assert rows(table) == before


T = TypeVar("T")


def events_of(run: Run) -> list[RecordedEvent]:
    return run.ledger.recorded_in(run.ledger.from_block, run.chain.head().number)


def test_no_single_event_can_be_left_out_or_come_twice(honest: Run) -> None:
    ledger, events = honest.ledger, events_of(honest)
    assert len({type(recorded.event) for recorded in events}) == 7
    begin, state = LedgerView.at_deployment(ledger.deployment()), ledger.state()
    for place in range(len(events)):
        for wrong in (events[:place] + events[place + 1 :], events[: place + 1] + events[place:]):
            assert storage_difference(view_after(begin, wrong), state) is not None


def test_a_registration_in_batches_is_counted_batch_by_batch() -> None:
    """The digest of what is left to register is the contract's; no event tells it."""
    parameters = replace(SHORT, clients=600, active_ppm=50_000)
    document = RunDocument(parameters, registry_of(parameters), sha256(b"model"), LAYOUT, {})
    deployment, batches = deployment_for(document)
    ledger = MemoryLedger(deployment, DOMAIN)
    view = LedgerView.at_deployment(deployment)
    assert storage_difference(view, ledger.state()) is not None, "the deployment has left a log"
    view = view_after(view, ledger.recorded_in(1, 1))
    assert storage_difference(view, ledger.state()) is None
    assert len(batches) == 3
    for batch in batches:
        ledger.register_clients(batch.words, batch.rest)
        newest = ledger.newest_block().number
        assert storage_difference(view, ledger.state()) is not None
        view = view_after(view, ledger.recorded_in(newest, newest))
        assert storage_difference(view, ledger.state()) is None


@dataclass
class Branch(ForgedChain):
    """A chain of which a question may be answered by another branch."""

    moves: Callable[[str, int], ChainReader] | None = None
    calls: Counter[str] = field(default_factory=Counter)

    def passed(self, name: str, ask: Callable[[ChainReader], T], *_asked: object) -> T:
        self.calls[name] += 1
        return ask(self.chain if self.moves is None else self.moves(name, self.calls[name]))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run.on_revm(tmp_path)
    run.play()
    with run.chain:
        yield run


def answers(ledger: CommitteeLedger) -> list[object]:
    rounds = [(ledger.opening(n), ledger.round_events(n), ledger.commitments(n)) for n in (1, 2)]
    lists = ledger.registry(), ledger.bans(), ledger.outcomes(1), ledger.state()
    return [*rounds, *lists, ledger.outcomes(9, descending=False), ledger.deployment()]


def test_a_complete_log_answers_what_the_chain_does(honest: Run) -> None:
    assert answers(complete_ledger(honest.ledger)) == answers(honest.ledger)


def test_log_continues_where_it_was_read_as_of_its_block(run: Run) -> None:
    node = Branch(run.chain)
    ledger, log = at(node, run), EventLog()
    before = log.up_to(ledger)
    told = answers(before)
    run.commit({client: run.word(client) for client in run.trainers[:2]})
    asked = dict(node.calls)
    after = log.up_to(ledger)
    more = {name: count - asked.get(name, 0) for name, count in node.calls.items()}
    assert {name for name, count in more.items() if count} == {"head", "block", "logs", "call"}
    assert sum(more.values()) <= 6
    assert answers(after) == answers(run.ledger)
    assert answers(before) == told
    assert len(after.commitments(2)) == 2
    earlier = log.up_to(ledger, before.chain.head())
    assert (earlier.commitments(2), earlier.state()) == ((), before.state())
    with pytest.raises(NotServedError, match="were not read"):
        after.chain.logs(LogQuery(None, [], 0, 1))


def test_omissions_from_the_open_round_are_noticed_and_not_cached(run: Run) -> None:
    """Nobody has a head that commits to it yet: the contract's own digest does."""
    log = EventLog()
    log.up_to(run.ledger)
    run.commit({client: run.word(client) for client in run.trainers[:2]})
    newest = run.chain.head().number

    def lacking(logs: list[Log]) -> list[Log]:
        return [one for one in logs if one.block_number != newest]

    lying = forged(run.ledger, logs_of=lacking, node="http://node")
    for _ in range(2):
        with pytest.raises(IncompleteLogsError, match="http://node") as refused:
            log.up_to(lying)
        assert refused.value.node == "http://node"
    assert answers(log.up_to(run.ledger)) == answers(run.ledger)


@pytest.mark.parametrize("name", ["logs", "call"])
def test_a_reorganisation_between_two_questions_is_no_lie(run: Run, name: str) -> None:
    """All is asked again; of a chain that never rests it is said that it moves."""
    branches = []
    for number in (1, 2):
        branch = run.branched()
        branch.commit({client: branch.word(client) for client in branch.trainers[:number]})
        branches.append(branch)
    one, other = branches
    with one.chain, other.chain:

        def once(asked: str, count: int) -> ChainReader:
            return one.chain if (asked, count) == ("head", 1) else other.chain

        node = Branch(one.chain, moves=once)
        assert answers(complete_ledger(at(node, run))) == answers(other.ledger)
        assert node.calls["head"] == 2

        def restless(asked: str, _: int) -> ChainReader:
            return one.chain if asked in {"head", name} else other.chain

        node = Branch(one.chain, moves=restless)
        with pytest.raises(ChainMovedError):
            complete_ledger(at(node, run))
        assert node.calls["head"] == ATTEMPTS


def at(node: ChainReader, run: Run) -> CommitteeLedger:
    return CommitteeLedger(node, run.ledger.address, run.ledger.from_block)
