"""A fold that grows block by block answers as a fresh one does, at each block and after a fork."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.generated_rounds import ChainSizes, GeneratedChain
from ledger.chain.ports import IncompleteLogsError
from ledger.history.history import DeploymentFold, FoldedHistory
from ledger.history.pages import CursorError
from ledger.history.participation import ScoresOutcome, UpdateOutcome, participation_of
from ledger.history.queries import RoundQuery, Span
from ledger.history.status import AskedRole, Order, RoundStatus
from ledger.protocol.types import ClientId, Digest
from ledger.storage.blobs import MemoryBlobs
from tests.audit.forged_chain import forged

ROUNDS = 8
QUERIES = (
    RoundQuery(),
    RoundQuery(order=Order.OLDEST, status=RoundStatus.ABANDONED),
    RoundQuery(client=ClientId(3)),
    RoundQuery(client=ClientId(3), role=AskedRole.SERVED),
)


def generated(seed: int = 0, rounds: int = ROUNDS) -> GeneratedChain:
    """Return a chain with decided, abandoned and late rounds, bans, and an open round."""
    chain = GeneratedChain(seed=seed)
    chain.published = MemoryBlobs()
    chain.register()
    for number in range(rounds):
        chain.commit(share=0.5)
        if number % 5 == 2:
            chain.ban()
        chain.play(1, abandoned=0.2)
    chain.commit()
    return chain


def folded(chain: GeneratedChain, fold: DeploymentFold, block: int) -> FoldedHistory:
    assert chain.published is not None
    final = max(0, block - 4)
    return fold.up_to(chain.ledger, chain.published, chain.block(block), final)


def answers(history: FoldedHistory) -> tuple[object, ...]:
    """Return everything that a history answers."""
    newest = history.newest()
    rounds = history.rounds(1, newest)
    digests: list[bytes] = [history.fixed.config, *(round_.seed for round_ in rounds)]
    for round_ in rounds:
        digests += [each.block_hash for each in round_.events]
        digests += history.documents(round_).payloads.values()
    return (
        rounds,
        [history.round(number) for number in range(newest + 2)],
        history.registered(),
        history.tally(),
        [history.occurrences(Digest(digest), 0, 100) for digest in digests[::9]],
        [history.page(query, 3, None) for query in QUERIES],
        [history.time_of(round_.ended.block_number) for round_ in rounds if round_.ended],
    )


def test_answers_at_each_block_are_those_of_a_fresh_fold() -> None:
    chain, grown = generated(), DeploymentFold()
    head = chain.head().number
    histories = [folded(chain, grown, block) for block in range(1, head + 1)]
    told = answers(histories[-1])
    for block, early in reversed(list(enumerate(histories, start=1))):
        fresh = answers(folded(chain, DeploymentFold(), block))
        assert answers(early) == fresh, "read before the fold went on"
        assert answers(folded(chain, grown, block)) == fresh, "read of a fold that is further"
    assert answers(histories[-1]) == told


@pytest.mark.parametrize("seed", range(3))
def test_answers_after_a_reorganisation_are_those_of_a_fresh_fold(seed: int) -> None:
    chain, fold = generated(), DeploymentFold()
    for back in (1, 2, 5, 9, chain.head().number - 3):
        before = folded(chain, fold, chain.head().number)
        told = answers(before)
        fork = chain.fork(chain.head().number - back, seed)
        fork.play(3)
        after = folded(fork, fold, fork.head().number)
        assert answers(after) == answers(folded(fork, DeploymentFold(), fork.head().number))
        assert before.rounds(1, before.newest()) == told[0]
        chain = fork


def test_a_shorter_chain_is_folded_again() -> None:
    chain, fold = generated(), DeploymentFold()
    folded(chain, fold, chain.head().number)
    shorter = chain.fork(chain.head().number - 7, 1)
    told = answers(folded(shorter, fold, shorter.head().number))
    assert told == answers(folded(shorter, DeploymentFold(), shorter.head().number))


def test_a_ban_after_the_last_round_is_one_of_that_round() -> None:
    chain = GeneratedChain(ChainSizes(rounds=2))
    chain.published = MemoryBlobs()
    chain.register()
    chain.play(2, abandoned=0)
    fold, ended = DeploymentFold(), chain.head().number
    before = folded(chain, fold, ended)
    chain.ban()
    after = folded(chain, fold, ended + 1)
    last, earlier = after.round(2), before.round(2)
    assert last is not None
    assert earlier is not None
    assert (len(last.banned), earlier.banned) == (1, ())
    assert after.registered()[last.banned[0]].banned_in == 2
    assert answers(folded(chain, fold, ended)) == answers(before)


def test_a_log_of_another_round_is_refused_and_read_again() -> None:
    chain, fold = generated(), DeploymentFold()
    whole = chain.ledger
    omitting = forged(whole, logs_of=lambda logs: [*logs[:8], *logs[12:]])
    with pytest.raises(IncompleteLogsError):
        fold.up_to(omitting, MemoryBlobs())
    assert fold.up_to(whole, MemoryBlobs()).newest() == ROUNDS + 1


def test_a_record_that_appears_later_is_found() -> None:
    chain = generated()
    assert chain.published is not None
    history = FoldedHistory.of(chain.ledger, chain.published)
    round_ = next(each for each in history.rounds(1, ROUNDS) if each.decided)
    assert round_.decided is not None
    blobs = MemoryBlobs()
    payload = next(iter(history.documents(round_).payloads.values()))
    late = FoldedHistory.of(chain.ledger, blobs)
    assert late.occurrences(payload, 0, 9) == []
    blobs.put(chain.published.get(round_.decided.record, 2**20))
    assert late.occurrences(payload, 0, 9) == history.occurrences(payload, 0, 9) != []


CHAIN = generated(rounds=30)
HISTORY = folded(CHAIN, DeploymentFold(), CHAIN.head().number)
spans = st.builds(
    lambda bounds: Span(*bounds),
    st.tuples(*(st.none() | st.integers(0, CHAIN.head().number),) * 2),
)
queries = st.builds(
    RoundQuery,
    order=st.sampled_from(Order),
    status=st.none() | st.sampled_from(RoundStatus),
    client=st.none() | st.integers(0, 11).map(ClientId),
    role=st.sampled_from(AskedRole),
    view_min=st.sampled_from([0, 0, 1]),
    blocks=spans,
)


def is_asked(query: RoundQuery, number: int) -> bool:
    """Return whether a round matches a query, by the definition of each term."""
    round_ = HISTORY.round(number)
    assert round_ is not None
    if query.status not in {None, round_.status}:
        return False
    if query.view_min and not (round_.decided and max(round_.decided.views) >= query.view_min):
        return False
    if query.blocks != Span():
        first, last = query.blocks.first or 0, query.blocks.last
        block = None if round_.ended is None else round_.ended.block_number
        if block is None or block < first or (last is not None and block > last):
            return False
    if query.client is None:
        return True
    part = participation_of(round_, HISTORY.documents(round_), query.client)
    if part is None:
        return False
    terms = {
        AskedRole.ANY: True,
        AskedRole.TRAINED: part.outcome is not None,
        AskedRole.ACCEPTED: part.outcome is UpdateOutcome.ACCEPTED,
        AskedRole.NOT_ACCEPTED: part.outcome is UpdateOutcome.NOT_ACCEPTED,
        AskedRole.DROPPED_OUT: part.outcome is UpdateOutcome.DROPPED_OUT,
        AskedRole.MEMBER: part.place is not None,
        AskedRole.SERVED: part.served,
        AskedRole.REFUSED: part.scores is ScoresOutcome.REFUSED,
        AskedRole.VOTED: bool(part.voted),
    }
    return terms[query.role]


@given(queries, st.integers(1, 7))
def test_pages_are_a_plain_list_in_pieces(query: RoundQuery, limit: int) -> None:
    numbers = range(1, HISTORY.newest() + 1)
    expected = [number for number in numbers if is_asked(query, number)]
    if query.order is Order.NEWEST:
        expected.reverse()
    pages, cursor = [HISTORY.page(query, limit, None)], None
    while (cursor := pages[-1].next_cursor) is not None:
        pages.append(HISTORY.page(query, limit, cursor))
    assert [round_.round for page in pages for round_ in page.rounds] == expected
    assert all(len(page.rounds) <= limit for page in pages)
    assert sum(page.scanned for page in pages) == len(numbers)


@given(queries, queries)
def test_a_cursor_of_another_query_is_refused(query: RoundQuery, other: RoundQuery) -> None:
    cursor = HISTORY.page(replace(query, status=None, client=None), 1, None).next_cursor
    if cursor is not None and replace(query, status=None, client=None) != other:
        with pytest.raises(CursorError):
            HISTORY.page(other, 1, cursor)
