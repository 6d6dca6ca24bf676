"""What is indexed is whole, whatever order it came in, whoever was killed, and whatever forked."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from benchmarks.generated_rounds import GeneratedChain
from ledger.chain.contract.committee_ledger import CommitteeLedger
from ledger.chain.ports import ChainUnreachableError, IncompleteLogsError, NotServedError
from ledger.history.chain_history import ChainHistory
from ledger.history.queries import RoundQuery
from ledger.index.codes import StorageComparison
from ledger.index.database import Database
from ledger.index.index import Coverage, Index
from ledger.index.index_errors import FinalBlockChangedError
from ledger.index.indexer import Indexer
from ledger.index.updater import follow
from ledger.protocol.ledger_state import ClientBanned, LedgerStage
from ledger.protocol.types import NO_DIGEST, ClientId
from tests.audit.blobs import ChangedBlobs
from tests.audit.forged_chain import ForgedChain, forged
from tests.faults import times
from tests.index.conftest import NOBODYS_BLOBS, SMALL, content, generated, indexed, made
from tests.patience import wait_until

if TYPE_CHECKING:
    from ledger.chain.ports import Log
    from ledger.protocol.types import Digest
    from tests.audit.runs import Run


def coverage(database: Database) -> Coverage:
    assert database.path is not None
    index = Index(database.path)
    with index.reading() as reading:
        (found,) = reading.coverage()
    index.close()
    return found


def test_says_how_far_it_is_and_that_nothing_is_missing(database: Database) -> None:
    chain = generated(4)
    chain.commit(0.5)
    progress = indexed(database, chain.ledger)
    assert (progress.block, progress.rounds, progress.is_done) == (chain.head().number, 5, True)
    found = coverage(database)
    assert (found.rounds, found.ended, found.head) == (5, 4, chain.state.head)
    assert found.compared is StorageComparison.EQUAL
    chain.play(1)
    indexer = Indexer(database, chain.ledger, NOBODYS_BLOBS, blocks=1)
    assert not indexer.step().is_done
    assert coverage(database).compared is StorageComparison.NOT_YET, (
        "an older state need not be kept"
    )


@pytest.mark.parametrize("place", [0, 1, 3, -1])
def test_a_log_that_is_missing_stops_it(database: Database, place: int) -> None:
    """Nothing is written of a range that does not follow from what was written before."""
    chain = generated(2)
    events = chain.ledger.events(0, chain.head().number)
    hidden = events[place]

    def without(logs: list[Log]) -> list[Log]:
        place = (hidden.block_number, hidden.log_index)
        return [log for log in logs if (log.block_number, log.log_index) != place]

    with pytest.raises(IncompleteLogsError):
        indexed(database, forged(chain.ledger, logs_of=without), blocks=50)
    found = coverage(database)
    assert (found.block, found.rounds) == (0, 0)
    assert indexed(database, chain.ledger).is_done, "the node has them again"
    assert coverage(database).compared is StorageComparison.EQUAL


def test_commitments_that_are_missing_in_the_open_round_are_noticed(database: Database) -> None:
    """No head commits to them yet: the contract's storage does."""
    chain = generated(2)
    before = indexed(database, chain.ledger).block
    chain.commit()
    lost = forged(chain.ledger, logs_of=lambda logs: [x for x in logs if x.block_number <= before])
    with pytest.raises(NotServedError, match="the logs lead to commitments"):
        indexed(database, lost)
    assert coverage(database).compared is StorageComparison.DIFFERENT
    indexed(database, chain.ledger)
    assert coverage(database).compared is StorageComparison.EQUAL


def test_a_log_that_comes_twice_stops_it(database: Database) -> None:
    chain = generated(2)
    twice = forged(chain.ledger, logs_of=lambda logs: [x for log in logs for x in (log, log)])
    with pytest.raises(IncompleteLogsError):
        indexed(database, twice, blocks=50)


def test_a_storage_that_is_not_kept_is_no_contradiction(database: Database) -> None:
    chain = generated(2)

    def pruned(name: str, data: bytes) -> bytes:
        if name == "state":
            raise NotServedError("missing trie node")
        return data

    assert indexed(database, forged(chain.ledger, answer_of=pruned)).is_done
    assert coverage(database).compared is StorageComparison.NOT_YET


def test_a_block_that_changes_while_read_is_read_again(database: Database) -> None:
    chain = generated(2)
    other = chain.fork(chain.head().number - 2, 1)
    other.play(2)
    between = ForgedChain(chain, block_of=lambda block: other.block(block.number))
    moved = CommitteeLedger(between, chain.ledger.address, 1)
    with pytest.raises(NotServedError, match="became another one"):
        indexed(database, moved)
    assert indexed(database, chain.ledger).is_done


def test_a_fork_below_what_is_read_is_not_read_over(database: Database) -> None:
    """It may come between the look at the last block and the logs: the next step rewinds."""
    chain = generated(2)
    chain.final = 1
    before = indexed(database, chain.ledger).block
    other = chain.fork(before - 3, 1)
    other.play(3)
    chain.play(1)
    is_forked = [False]

    def forks(logs: list[Log]) -> list[Log]:
        is_forked[0] = True
        return other.logs(None, [], before + 1, other.head().number)

    between = forged(
        chain.ledger,
        logs_of=forks,
        block_of=lambda one: other.block(one.number) if is_forked[0] else one,
    )
    with pytest.raises(NotServedError, match="became another one"):
        Indexer(database, between, NOBODYS_BLOBS).step()
    assert coverage(database).block == before
    indexed(database, other.ledger)
    assert coverage(database).head == other.state.head


class IndexMachine(RuleBasedStateMachine):
    """A chain that grows and forks, and indexers that are killed and begin anew."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.chain = GeneratedChain(SMALL)
        self.chain.final = 0
        self.forks = 0
        self.path = Path(self.folder.name) / "index.sqlite"
        self.database = made(self.path)
        self.indexer: Indexer | None = None

    @initialize(rounds=st.integers(0, 3))
    def begin(self, rounds: int) -> None:
        self.chain.register()
        self.chain.play(rounds)

    @rule(share=st.sampled_from((0.3, 1.0)))
    @precondition(lambda self: self.chain.state.round and self.is_open())
    def commit(self, share: float) -> None:
        self.chain.commit(share)

    @rule(decided=st.booleans())
    @precondition(lambda self: self.chain.state.round and self.is_open())
    def end(self, decided: bool) -> None:
        (self.chain.decide if decided else self.chain.abandon)()

    @rule()
    @precondition(lambda self: self.chain.state.round)
    def ban(self) -> None:
        self.chain.ban()

    @rule()
    def mine(self) -> None:
        self.chain.mine()

    @rule(blocks=st.integers(1, 6), is_killed=st.booleans())
    def step(self, blocks: int, is_killed: bool) -> None:
        if self.indexer is None:
            self.indexer = Indexer(self.database, self.chain.ledger, NOBODYS_BLOBS, blocks=blocks)
        self.indexer.step()
        if is_killed:
            self.indexer = None

    @rule(back=st.integers(1, 12))
    def fork(self, back: int) -> None:
        self.forks += 1
        final = self.chain.final or 0
        head = self.chain.head().number
        other = self.chain.fork(max(final, 1, head - back), self.forks)
        for _ in range(head - other.head().number + 1):
            other.mine()
        if not other.state.round:
            other.register()
        self.chain, self.indexer = other, None

    @rule(blocks=st.integers(1, 10))
    def finalize(self, blocks: int) -> None:
        self.chain.final = min(self.chain.head().number, (self.chain.final or 0) + blocks)

    def is_open(self) -> bool:
        return self.chain.state.stage == 1

    def teardown(self) -> None:
        """A new index of the same chain has the same content."""
        indexed(self.database, self.chain.ledger)
        fresh = made(self.path.with_name("fresh.sqlite"))
        indexed(fresh, self.chain.ledger, blocks=1_000)
        assert content(self.database) == content(fresh)
        found = coverage(self.database)
        assert (found.head, found.compared) == (self.chain.state.head, StorageComparison.EQUAL)
        self.database.close()
        fresh.close()
        self.folder.cleanup()


TestAnyOrder = IndexMachine.TestCase
TestAnyOrder.settings = settings(max_examples=times(4, 200), stateful_step_count=12)


def test_a_fork_takes_back_rounds_and_nothing_final(database: Database) -> None:
    chain = generated(4)
    chain.final = chain.head().number
    chain.play(3)
    indexed(database, chain.ledger)
    assert database.path is not None
    index = Index(database.path)
    with index.reading() as reading:
        own = reading.history(chain.genesis_hash, chain.ledger.address, NOBODYS_BLOBS)
        before = own.rounds(1, 4)
        (gone,) = own.rounds(6, 6)
        page = own.page(RoundQuery("rounds"), 3, None)
    assert gone.end is not None
    other = chain.fork(chain.final + 2, 7)
    other.play(5)
    assert Indexer(database, other.ledger, NOBODYS_BLOBS).step().rewound
    indexed(database, other.ledger)
    with index.reading() as reading:
        own = reading.history(chain.genesis_hash, chain.ledger.address, NOBODYS_BLOBS)
        assert own.rounds(1, 4) == before
        assert own.rounds(1, own.newest()) == ChainHistory.of(other.ledger, NOBODYS_BLOBS).rounds(
            1, own.newest()
        )
        assert reading.look_up(gone.end.head) == []
        assert own.page(RoundQuery("rounds"), 3, None) != page
        assert reading.coverage()[0].rewinds == 1
    index.close()


def test_bans_after_an_early_end_are_refolded_after_forks(database: Database) -> None:
    """They are of a round that never began, so no round's events hold them."""
    chain = generated(2)
    chain.final = 1
    for client in range(10):
        chain.mine(ClientBanned(chain.state.round, ClientId(client), NO_DIGEST))
    chain.abandon()
    assert chain.state.stage is LedgerStage.FINISHED
    chain.mine(ClientBanned(chain.state.round, ClientId(10), NO_DIGEST))
    shared = chain.head().number
    other = chain.fork(shared, 5)
    chain.mine()
    indexed(database, chain.ledger)
    other.mine(ClientBanned(other.state.round, ClientId(11), NO_DIGEST))
    other.mine()
    assert Indexer(database, other.ledger, NOBODYS_BLOBS).step().rewound
    indexed(database, other.ledger)
    found = coverage(database)
    assert (found.head, found.compared) == (other.state.head, StorageComparison.EQUAL)
    assert found.ended == 3


def test_a_chain_that_takes_back_what_was_final_is_refused(database: Database) -> None:
    chain = generated(4)
    indexed(database, chain.ledger)
    before = content(database)
    other = chain.fork(chain.head().number - 4, 7)
    with pytest.raises(NotServedError, match="was final before"):
        indexed(database, other.ledger)
    other.play(9)
    with pytest.raises(FinalBlockChangedError, match="was final with hash 0x"):
        indexed(database, other.ledger)
    assert content(database) == before


def test_a_node_that_is_behind_takes_nothing_back(database: Database) -> None:
    chain = generated(4)
    chain.final = 5
    indexed(database, chain.ledger)
    behind = chain.fork(chain.head().number - 2, 7)
    progress = Indexer(database, behind.ledger, NOBODYS_BLOBS).step()
    assert (progress.rewound, progress.is_done) == (False, True)
    assert coverage(database).block == chain.head().number


def test_documents_that_come_late_are_counted_then(
    honest: Run, database: Database, empty_index: Path, tmp_path: Path
) -> None:
    event = honest.outcome(2)
    lost: dict[Digest, bytes | None] = {event.record: None, event.incidents: b"nothing"}
    blobs = ChangedBlobs(honest.blobs, lost)
    indexed(database, honest.ledger, blobs)
    assert coverage(database).waiting == 1
    assert database.path is not None
    index = Index(database.path)
    with index.reading() as reading:
        own = reading.history(honest.chain.genesis_hash, honest.ledger.address, blobs)
        assert own.tally() == ChainHistory.of(honest.ledger, blobs).tally()
        assert own.tally().records_missing == 1
    indexer = Indexer(database, honest.ledger, blobs)
    indexer.step()
    assert coverage(database).waiting == 1, "it is not there yet"
    lost.clear()
    indexer.step()
    indexer.step()
    assert coverage(database).waiting == 0
    whole = Database(shutil.copy(empty_index, tmp_path / "whole.sqlite"), read_only=False)
    indexed(whole, honest.ledger, honest.blobs)
    assert content(database) == content(whole)
    index.close()
    whole.close()


def test_two_indexers_write_it_once(database: Database, empty_index: Path, tmp_path: Path) -> None:
    chain = generated(12)
    other = Database(database.path or "", read_only=False)
    threads = [
        threading.Thread(target=indexed, args=(one, chain.ledger, NOBODYS_BLOBS, 2))
        for one in (database, other)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = Database(shutil.copy(empty_index, tmp_path / "alone.sqlite"), read_only=False)
    indexed(alone, chain.ledger)
    assert content(database) == content(alone)
    other.close()
    alone.close()


KILLED = """
import sys
from pathlib import Path
from ledger.index.database import Database
from tests.index.conftest import generated, indexed, NOBODYS_BLOBS
chain = generated(12)
print("begins", flush=True)
while True:
    indexed(Database(Path(sys.argv[1]), read_only=False), chain.ledger, NOBODYS_BLOBS, 1)
"""


def test_goes_on_where_it_was_killed(database: Database, empty_index: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(database.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        try:
            wait_until(lambda: content(database)["round"])
        finally:
            process.send_signal(signal.SIGKILL)
    chain = generated(12)
    indexed(database, chain.ledger)
    alone = Database(shutil.copy(empty_index, tmp_path / "alone.sqlite"), read_only=False)
    indexed(alone, chain.ledger)
    assert content(database) == content(alone)
    alone.close()


def test_follows_a_chain_until_it_is_told_to_stop(database: Database) -> None:
    chain = generated(1)
    stop, told = threading.Event(), list[str]()
    failing = [True]

    def logs(found: list[Log]) -> list[Log]:
        if failing and failing.pop():
            raise ChainUnreachableError("the node went away")
        return found

    indexer = Indexer(database, forged(chain.ledger, logs_of=logs), NOBODYS_BLOBS)
    with pytest.raises(ChainUnreachableError):
        indexer.step()
    failing.append(True)

    def note(error: Exception) -> None:
        told.append(str(error))

    thread = threading.Thread(
        target=lambda: follow(lambda: [indexer], stop, pause_seconds=0.01, on_error=note)
    )
    thread.start()
    try:
        rounds_become(database, 2)
        chain.play(2, abandoned=0)
        rounds_become(database, 4)
    finally:
        stop.set()
        thread.join()
    assert told == ["the node went away"]


def rounds_become(database: Database, number: int) -> None:
    wait_until(lambda: coverage(database).rounds >= number)
