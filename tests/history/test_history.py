"""What chain and blobs tell of one round, and of one client over all of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.generated_rounds import GeneratedChain
from ledger.chain.ports import IncompleteLogsError
from ledger.history.answers_parts import commitments
from ledger.history.fields import AskedRole, CursorError, Order, RoundQuery, Span
from ledger.history.history import DeploymentFold, FoldedHistory, RoundRangeError
from ledger.history.round import (
    DocumentedRound,
    Documents,
    HistoryRound,
    RoundRole,
    RoundStatus,
    ScoresOutcome,
    UpdateOutcome,
    digests_of_deployment,
    digests_of_round,
    missing_payloads,
    read_documents,
    read_run,
)
from ledger.history.training import counting_only, joined, training_coverage
from ledger.protocol.encoding import commitment_of, commitments_chain, sha256, to_hex
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId, Digest, DropoutReason, Phase
from ledger.storage.blobs import MemoryBlobs
from ledger.storage.mailbox import MemoryMailbox
from tests.api.store.conftest import contract_in
from tests.audit.blobs import ChangedBlobs
from tests.audit.forged_chain import forged
from tests.audit.runs import PARAMETERS, Deviation, Run


def history_of(run: Run) -> FoldedHistory:
    return FoldedHistory.of(run.ledger, run.blobs)


def round_of(run: Run, number: int) -> tuple[HistoryRound, Documents]:
    history = history_of(run)
    one = history.round(number)
    assert one is not None
    return one, history.documented(one).documents


def test_tells_a_decided_round(honest: Run) -> None:
    one, documents = round_of(honest, 1)
    assert (one.round, one.status) == (1, RoundStatus.DECIDED)
    assert documents.record is not None
    assert one.decided is not None
    assert one.ended is not None
    assert len(one.trainers) == PARAMETERS.trainers
    malformed = next(
        d for d in documents.record.dropouts if d.reason is DropoutReason.PAYLOAD_MALFORMED
    )
    assert documents.payloads[malformed.client] == malformed.payload
    for client, payload in documents.payloads.items():
        assert one.commitments[client] == commitment_of(client, payload)


def test_samples_without_the_banned_and_knows_empty_seats(honest: Run) -> None:
    banned = {ban.client for ban in honest.ledger.bans()}
    one, _ = round_of(honest, 5)
    assert len(banned) == 2
    assert not banned.intersection(one.trainers)
    assert one.vacant_members == tuple(c for c in one.committee if c in banned)
    assert len(one.vacant_members) == 1
    assert round_of(honest, 4)[0].vacant_members == ()


def test_tells_an_open_round_and_none_that_has_not_opened(tmp_path: Path) -> None:
    run = Run.on_revm(tmp_path)
    with run.chain:
        history = history_of(run)
        one = history.round(1)
        assert one is not None
        assert (one.status, one.ended, history.newest()) == (RoundStatus.OPEN, None, 1)
        assert history.round(2) is None


def test_every_commitment_is_listed_and_the_base_is_cut(honest: Run) -> None:
    # In round 2 a bystander commits in time, and another one after the closing block.
    one, _ = round_of(honest, 2)
    told = commitments(one)
    blocks = [entry["block"] for entry in told]
    assert blocks[:-1] == [blocks[0]] * (len(told) - 1)
    assert blocks[-1] > blocks[0], "the last word came late"
    assert len(told) == len(one.counted) + 2
    words = [(ClientId(e["client"]), Digest(bytes.fromhex(e["commitment"][2:]))) for e in told]
    assert one.decided is not None
    assert commitments_chain(words[:-1]) == one.decided.base
    assert not {client for client, _ in words[-2:]} & one.counted


def test_documents_that_are_missing_or_bogus_are_none(honest: Run) -> None:
    event = honest.outcome(2)
    gone = ChangedBlobs(honest.blobs, {event.record: None, event.incidents: b"nothing"})
    one, whole = round_of(honest, 2)
    documents = read_documents(gone, one)
    assert (documents.record, documents.incidents) == (None, None)
    assert whole.has_incidents
    assert not documents.has_incidents
    assert read_run(MemoryBlobs(), event.record) is None
    assert read_run(honest.blobs, honest.ledger.deployment().config) == honest.document


def test_incidents_of_other_inputs_are_none(tmp_path: Path) -> None:
    run = Run.on_revm(tmp_path)
    with run.chain:
        run.play(Deviation(incidents_blob=lambda _, run: run.incidents_of(sha256(b"others"))))
        assert round_of(run, 1)[1].incidents is None


def test_payloads_that_are_gone_are_named(honest: Run) -> None:
    _, documents = round_of(honest, 1)
    assert missing_payloads(documents, honest.blobs) == ()
    client, payload = next(iter(sorted(documents.payloads.items())))
    without = ChangedBlobs(honest.blobs, {payload: None})
    assert missing_payloads(documents, without) == (client,)


def test_tells_what_each_client_was_in_a_round(honest: Run) -> None:
    one, documents = round_of(honest, 2)
    assert one.decided is not None
    assert documents.record is not None
    documented = DocumentedRound(one, documents)
    parts = {part.client: part for part in documented.all()}
    assert parts.keys() == {*one.trainers, *one.committee}
    for client, part in parts.items():
        assert documented.part(client) == part
        assert (part.role is RoundRole.MEMBER) == (client in one.committee)
        assert part.committed == (client in one.counted)
        assert (part.outcome is UpdateOutcome.ACCEPTED) == (client in one.decided.accepted)
    for phase, primary, bits in zip(Phase, one.decided.primaries, one.decided.signers, strict=True):
        assert phase in parts[primary].primary_of
        voters = {c for place, c in enumerate(one.committee) if bits >> place & 1} | {primary}
        assert voters == {c for c, part in parts.items() if phase in part.voted}
    counted = {signed.scores.member for signed in documents.record.scores}
    assert counted == {c for c, part in parts.items() if part.scores is ScoresOutcome.COUNTED}
    nobody = next(c for c in range(PARAMETERS.clients) if c not in parts)
    assert documented.part(ClientId(nobody)) is None


def test_counts_what_each_client_did(honest: Run) -> None:
    history = history_of(honest)
    tally = history.tally()
    assert (tally.rounds, tally.records_missing) == (5, 0)
    assert len(tally.clients) == PARAMETERS.clients
    assert sum(one["served"] for one in tally.clients) == 5 * PARAMETERS.members - 1, (
        "an empty seat"
    )
    assert sum(one["ranked"] for one in tally.clients) == 5 + 7 + 6 + 7
    assert sum(one["sampled"] for one in tally.clients) == 5 * PARAMETERS.trainers
    assert sorted(c.banned_in for c in history.registered() if c.banned_in) == [3, 4]
    for client, counts in enumerate(tally.clients):
        parts = [history.documented(one).part(ClientId(client)) for one in history.rounds(1, 5)]
        assert sum(part is not None and part.served for part in parts) == counts["served"]
        assert sum(part is not None and part.rank is not None for part in parts) == counts["ranked"]
    assert history.tally() == tally, "what was kept is counted once"


def test_a_record_that_comes_back_is_counted_then(honest: Run) -> None:
    missing = honest.outcome(2).record
    lost: dict[Digest, bytes | None] = {missing: None}
    history = FoldedHistory.of(honest.ledger, ChangedBlobs(honest.blobs, lost))
    before = history.tally()
    assert (before.rounds, before.records_missing) == (5, 1)
    assert history.tally() == before
    del lost[missing]
    assert history.tally() == history_of(honest).tally()


def test_an_open_round_is_not_covered(tmp_path: Path) -> None:
    mailbox = MemoryMailbox()
    with contract_in(tmp_path, rounds=6, commit_blocks=1, deadline_blocks=3) as contract:

        def covered(
            first: int | None = None, last: int | None = None, most: int = 9
        ) -> tuple[int, int, int, int | None]:
            history = FoldedHistory.of(contract.ledger, MemoryBlobs())
            bounds, rounds = (first, last), []

            def is_enough(_: int) -> bool:
                rounds.append(1)
                return len(rounds) >= most

            found = training_coverage(history, contract.domain, mailbox, bounds, is_enough)
            assert counting_only(found, {"0x"}) == found
            assert joined([found])["next_from"] is None
            return found["first"], found["last"], found["ended"], found["next_from"]

        assert covered() == (1, 0, 0, None)
        with pytest.raises(ConfigurationError, match="ended rounds"):
            covered(1, 1)
        for _ in range(3):
            assert contract.run.driver.abandon(contract.run.chain_view())
        assert covered() == (1, 3, 3, None)
        assert covered(2) == (2, 3, 3, None)
        assert covered(None, 2) == (1, 2, 3, None)
        assert covered(most=1) == (1, 1, 3, 2)
        assert covered(2, 3, most=1) == (2, 2, 3, 3)
        for first, last in ((4, None), (None, 4), (3, 2), (0, 1)):
            with pytest.raises(ConfigurationError, match="ended rounds"):
                covered(first, last)


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
    newest = history.newest()
    rounds = history.rounds(1, newest)
    digests: list[bytes] = [history.fixed.config, *(round_.seed for round_ in rounds)]
    for round_ in rounds:
        digests += [each.block_hash for each in round_.events]
        digests += history.documented(round_).documents.payloads.values()
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


def test_a_ban_after_the_last_round_is_one_of_that_round() -> None:
    chain = GeneratedChain(rounds=2)
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
    assert (len(last.bans), earlier.bans) == (1, {})
    assert after.registered()[next(iter(last.bans))].banned_in == 2
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
    payload = next(iter(history.documented(round_).documents.payloads.values()))
    late = FoldedHistory.of(chain.ledger, blobs)
    assert late.occurrences(payload, 0, 9) == []
    blobs.put(chain.published.get(round_.decided.record, 2**20))
    assert late.occurrences(payload, 0, 9) == history.occurrences(payload, 0, 9) != []


CHAIN = generated(rounds=30)
HISTORY = folded(CHAIN, DeploymentFold(), CHAIN.head().number)
spans = st.builds(
    lambda bounds: Span(*bounds), st.tuples(*(st.none() | st.integers(0, CHAIN.head().number),) * 2)
)
queries = st.builds(
    RoundQuery,
    order=st.sampled_from(Order),
    status=st.none() | st.sampled_from(RoundStatus),
    client=st.none() | st.integers(0, 11).map(ClientId),
    role=st.sampled_from(AskedRole),
    view_min=st.sampled_from([0, 0, 1]),
    blocks=spans,
    rounds=st.lists(st.integers(1, 30), min_size=2, max_size=2).map(lambda two: Span(*sorted(two)))
    | st.sampled_from([Span(), Span(4), Span(None, 9)]),
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
    part = HISTORY.documented(round_).part(ClientId(query.client))
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
    numbers = [each for each in range(1, HISTORY.newest() + 1) if query.rounds.contains(each)]
    expected = [number for number in numbers if is_asked(query, number)]
    if query.order is Order.NEWEST:
        expected.reverse()
    pages, cursor = [HISTORY.page(query, limit, None)], None
    while (cursor := pages[-1].next_cursor) is not None:
        pages.append(HISTORY.page(query, limit, cursor))
    assert [round_.round for page in pages for round_ in page.entries] == expected
    assert all(len(page.entries) <= limit for page in pages)
    assert sum(page.scanned for page in pages) == len(numbers)


@given(queries, st.integers(1, 7))
def test_a_limit_counts_entries_and_a_page_may_end_within_a_round(
    query: RoundQuery, limit: int
) -> None:
    query = replace(query, listing="evidence")

    def entries_of(round_: HistoryRound) -> list[int]:
        return [100 * round_.round + place for place in range(round_.round % 4 * 3)]

    rounds = [each for each in HISTORY.rounds(1, 99) if query.rounds.contains(each.round)]
    found, cursor, is_over = list[int](), None, False
    while not is_over:
        page = HISTORY.page_of(query, limit, cursor, entries_of)
        found, cursor, is_over = found + page.entries, page.next_cursor, page.next_cursor is None
        assert len(page.entries) == limit or is_over
    ordered = rounds[:: -1 if query.order is Order.NEWEST else 1]
    assert found == [entry for each in ordered for entry in entries_of(each)]


@pytest.mark.parametrize("rounds", [Span(9, 4), Span(4, 99), Span(99), Span(0, 4), Span(None, 0)])
def test_a_range_that_is_no_part_of_the_run_is_refused(rounds: Span) -> None:
    rule = f"must be the first and the last of the {HISTORY.newest()} rounds that have opened"
    with pytest.raises(RoundRangeError, match=rf"^rounds [0-9]+\.\.[0-9]+: {rule}$"):
        HISTORY.page(RoundQuery(rounds=rounds), 5, None)
    assert HISTORY.page(RoundQuery(rounds=Span(4, 9)), 5, None).entries


@given(queries, queries)
def test_a_cursor_of_another_query_is_refused(query: RoundQuery, other: RoundQuery) -> None:
    cursor = HISTORY.page(replace(query, status=None, client=None), 1, None).next_cursor
    if cursor is not None and replace(query, status=None, client=None) != other:
        with pytest.raises(CursorError):
            HISTORY.page(other, 1, cursor)


def test_a_digest_is_found_as_by_a_search_of_every_round() -> None:
    chain, grown = generated(), DeploymentFold()
    for block in (chain.head().number // 2, chain.head().number):
        history = folded(chain, grown, block)
        rounds = history.rounds(1, history.newest())
        everywhere = [*digests_of_deployment(history.fixed)]
        everywhere += [
            each for round_ in rounds for each in digests_of_round(history.documented(round_))
        ]
        for digest in {each.digest for each in everywhere}:
            expected = sorted({each for each in everywhere if each.digest == digest})
            found = [each for each in history.occurrences(digest, 0, 10_000) if each.kind < 17]
            assert found == [each for each in expected if each.kind < 17]
        assert history.occurrences(Digest(b"\x01" * 32), 0, 100) == []


def test_one_history_is_kept_for_each_block_until_it_is_cut() -> None:
    chain, grown = generated(), DeploymentFold()
    ledger, blobs, head = chain.ledger, MemoryBlobs(), chain.head()
    first = grown.up_to(ledger, blobs, head, head.number)
    assert grown.up_to(ledger, blobs, head, head.number) is first
    assert grown.up_to(ledger, blobs, head, head.number - 1) is not first
    assert grown.up_to(ledger, MemoryBlobs(), head, head.number) is not first


def test_the_block_of_an_end_follows_a_reorganisation() -> None:
    chain, grown = generated(), DeploymentFold()
    newest = folded(chain, grown, chain.head().number)
    ended = [round_ for round_ in newest.rounds(1, newest.newest()) if round_.ended]
    assert all(newest.end_block(round_) == newest.end_block(round_) for round_ in ended)
    fork = chain.fork(ended[-2].opening.opened_block, seed=9)
    fork.play(3)
    history = folded(fork, grown, fork.head().number)
    for round_ in history.rounds(1, history.newest()):
        end = history.end_block(round_)
        if round_.ended is None:
            assert end is None
            continue
        assert end is not None
        assert end["hash"] == to_hex(fork.block(end["number"]).hash)
        assert end["time"] == fork.block(end["number"]).timestamp
