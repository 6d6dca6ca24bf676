"""The index answers what the chain answers, question by question."""

from __future__ import annotations

import itertools
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.chain.ports import NotServedError
from ledger.history.chain_history import ChainHistory
from ledger.history.pages import CursorError, read_page
from ledger.history.participation import participations
from ledger.history.queries import UNBOUNDED, RoundQuery, Span
from ledger.history.serialise.serialise_clients import client_rounds_page, clients_page
from ledger.history.serialise.serialise_rounds import full_round, rounds_page
from ledger.history.serialise.values import DocumentedRound
from ledger.history.status import AskedRole, Order, RoundStatus
from ledger.index.database import Database
from ledger.index.index import Index
from ledger.index.index_errors import NotIndexedError
from ledger.index.indexed_history import IndexedHistory
from ledger.protocol.types import ClientId
from tests.faults import times
from tests.index.conftest import NOBODYS_BLOBS, generated, indexed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ledger.history.source import HistorySource
    from tests.audit.runs import Run

LONG = 24


@pytest.fixture
def recorded(honest: Run) -> ChainHistory:
    return ChainHistory.of(honest.ledger, honest.blobs)


@pytest.fixture(scope="module")
def long(
    empty_index: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[IndexedHistory, ChainHistory]]:
    """Some more rounds, with bans, abandoned ones and one that is open."""
    chain = generated(LONG // 2)
    chain.ban()
    chain.play(LONG // 2, abandoned=0.2)
    chain.commit(0.5)
    path = shutil.copy(empty_index, tmp_path_factory.mktemp("long") / "index.sqlite")
    database = Database(path, read_only=False)
    indexed(database, chain.ledger)
    with Index(path).reading() as reading:
        own = reading.history(chain.genesis_hash, chain.ledger.address, NOBODYS_BLOBS)
        yield own, ChainHistory.of(chain.ledger, NOBODYS_BLOBS)
    database.close()


def test_rounds_come_back_as_the_chain_tells_them(
    history: IndexedHistory, recorded: ChainHistory
) -> None:
    assert (history.path, history.fixed) == (recorded.path, recorded.fixed)
    assert history.newest() == recorded.newest() == 5
    assert history.rounds(1, 5) == recorded.rounds(1, 5)
    for number in range(1, 6):
        own, true = history.round(number), recorded.round(number)
        assert own is not None
        assert true is not None
        assert own == true
        assert own.participants == true.participants, "who trains is remembered, not drawn"
        assert full_round(DocumentedRound.of(history, own)) == full_round(
            DocumentedRound.of(recorded, true)
        )


def test_there_is_no_round_that_has_not_opened(history: IndexedHistory) -> None:
    assert history.round(0) is None
    assert history.round(6) is None
    with pytest.raises(NotServedError, match="round 6 has not opened; the newest is 5"):
        history.rounds(1, 6)


def test_parts_come_back_as_they_were(history: IndexedHistory, recorded: ChainHistory) -> None:
    refused = incidents = 0
    for number in range(1, 6):
        one = recorded.round(number)
        assert one is not None
        for part in participations(one, recorded.documents(one)):
            assert history.parts(part.client, [one]) == [part]
            refused += len(part.refused)
            incidents += len(part.incidents)
    assert refused, "a refusal is packed with its signature"
    assert incidents, "an incident is packed with its votes"


def test_clients_and_counts_are_the_chains(history: IndexedHistory, recorded: ChainHistory) -> None:
    assert history.registered() == recorded.registered()
    assert history.tally() == recorded.tally()
    assert clients_page(history, 4, None) == clients_page(recorded, 4, None)


def test_what_only_the_chain_has_is_asked_of_it(
    history: IndexedHistory, recorded: ChainHistory, honest_index: Index, honest: Run
) -> None:
    decided, banned = recorded.round(1), recorded.round(3)
    assert decided is not None
    assert banned is not None
    assert history.decision_call(decided) == recorded.decision_call(decided)
    assert history.ban_report(banned.bans[0]) == recorded.ban_report(banned.bans[0])
    with honest_index.reading() as reading:
        alone = reading.history(honest.chain.genesis_hash, honest.ledger.address, honest.blobs)
        with pytest.raises(NotIndexedError, match="holds no signatures"):
            alone.decision_call(decided)


def test_times_are_those_of_blocks_that_ended_rounds(
    history: IndexedHistory, recorded: ChainHistory
) -> None:
    for one in recorded.rounds(1, 5):
        assert one.ended is not None
        at = one.ended.block_number
        assert history.time_of(at) == recorded.time_of(at)
    with pytest.raises(NotIndexedError, match="no round that block 0 ended"):
        history.time_of(0)


@pytest.mark.parametrize("role", AskedRole)
def test_a_clients_rounds_are_found(
    history: IndexedHistory, recorded: ChainHistory, role: AskedRole
) -> None:
    for order, client in itertools.product(Order, map(ClientId, (0, 7, 12))):
        walk = RoundQuery("rounds", order, client=client, role=role)
        true = read_page(recorded, walk, 10, None)
        assert read_page(history, walk, 10, None) == true
        found = history.page(walk, 10, None)
        assert found == history.page(walk, 10, None) == recorded.page(walk, 10, None) == true
        expected = client_rounds_page(recorded, client, found)
        assert client_rounds_page(history, client, found) == expected


SPANS = st.one_of(
    st.just(UNBOUNDED),
    st.builds(Span, st.none() | st.integers(0, 60), st.none() | st.integers(0, 60)),
)


@settings(max_examples=times(15, 1_000))
@given(
    order=st.sampled_from(Order),
    status=st.none() | st.sampled_from(RoundStatus),
    client=st.none() | st.integers(0, 11).map(ClientId),
    role=st.sampled_from(AskedRole),
    view_min=st.integers(0, 2),
    blocks=SPANS,
    times=SPANS,
    limit=st.integers(1, 9),
)
def test_every_walk_finds_the_same_rounds_page_by_page(
    long: tuple[IndexedHistory, ChainHistory], limit: int, times: Span, **asked: Any
) -> None:
    own, true = long
    begin = 1_700_000_000
    seconds = Span(*(None if s is None else begin + 10 * s for s in (times.first, times.last)))
    walk = RoundQuery("rounds", times=seconds, **asked)
    assert rounds_page(own, read_page(own, walk, limit, None)) == rounds_page(
        true, read_page(true, walk, limit, None)
    )
    expected = list(pages(read_page, true, walk, limit))
    assert list(pages(IndexedHistory.page, own, walk, limit)) == expected, "with the same cursors"
    assert sum(page.scanned for page in expected) == own.newest()


def pages(read: Any, history: HistorySource, walk: RoundQuery, limit: int) -> Iterator[Any]:
    cursor = None
    while True:
        page = read(history, walk, limit, cursor)
        yield page
        cursor = page.next_cursor
        if cursor is None:
            return


def test_a_cursor_of_another_walk_is_refused(history: IndexedHistory) -> None:
    walk = RoundQuery("rounds")
    cursor = history.page(walk, 2, None).next_cursor
    assert [one.round for one in history.page(walk, 2, cursor).rounds] == [3, 2]
    with pytest.raises(CursorError):
        history.page(RoundQuery("rounds", Order.OLDEST), 2, cursor)


def test_a_ledger_before_its_first_round_has_none(database: Database) -> None:
    chain = generated()
    bare = chain.fork(1, 0)
    assert bare.head().number == 1
    indexed(database, bare.ledger)
    assert database.path is not None
    with Index(database.path).reading() as reading:
        own = reading.history(bare.genesis_hash, bare.ledger.address, NOBODYS_BLOBS)
        assert (own.newest(), own.registered()) == (0, ())
        assert len(own.tally().clients) == own.fixed.clients
        assert own.page(RoundQuery("rounds"), 3, None) == read_page(
            own, RoundQuery("rounds"), 3, None
        )
