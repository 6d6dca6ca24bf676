"""Whatever digest somebody holds in hand, the index says what it is and where it stands."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select

from ledger.history.chain_history import ChainHistory
from ledger.history.digests import DigestKind
from ledger.history.serialise.serialise_digests import digest_page
from ledger.history.source import TooLongError
from ledger.index.index import Index
from ledger.index.schema import DIGEST
from ledger.protocol.encoding import first_seed, sha256
from ledger.protocol.ledger_state import UpdatesCommitted
from ledger.protocol.types import NO_DIGEST, Digest
from tests.index.conftest import NOBODYS_BLOBS, indexed

if TYPE_CHECKING:
    from ledger.index.database import Database
    from ledger.index.indexed_history import IndexedHistory
    from tests.audit.runs import Run


def places(index: Index, digest: bytes) -> set[tuple[DigestKind, int | None, int | None]]:
    with index.reading() as reading:
        return {(one.kind, one.round, one.client) for one in reading.look_up(digest)}


def test_what_a_decision_names(honest_index: Index, honest: Run) -> None:
    event = honest.outcome(2)
    named = {
        DigestKind.BASE: event.base,
        DigestKind.MODEL: event.model,
        DigestKind.UPDATES_ROOT: event.updates_root,
        DigestKind.SCORES_ROOT: event.scores_root,
        DigestKind.REVEAL: event.reveal,
        DigestKind.RECORD: event.record,
        DigestKind.INCIDENTS: event.incidents,
        DigestKind.RESULT: event.result(),
        DigestKind.HEAD: event.head,
    }
    for kind, digest in named.items():
        assert places(honest_index, digest) == {(kind, 2, None)}
    assert places(honest_index, event.next_seed) == {(DigestKind.SEED, 3, None)}


def test_the_sha256sum_of_a_file(honest_index: Index, honest: Run) -> None:
    """A payload, a score vector and a record are found by what `sha256sum` says of them."""
    recorded = ChainHistory.of(honest.ledger, honest.blobs)
    one = recorded.round(1)
    assert one is not None
    documents = recorded.documents(one)
    assert documents.record is not None
    for client, payload in documents.payloads.items():
        digest = hashlib.sha256(honest.blobs.get(payload)).digest()
        assert places(honest_index, digest) == {(DigestKind.PAYLOAD, 1, client)}
    claims = [*documents.record.scores, *(entry.signed for entry in documents.record.refused)]
    assert len(claims) > len(documents.record.scores), "a liar's vector is found, too"
    for signed in claims:
        found = places(honest_index, signed.scores.digest)
        assert found == {(DigestKind.SCORE_VECTOR, 1, signed.scores.member)}


def test_commitments_blocks_and_transactions(honest_index: Index, honest: Run) -> None:
    for recorded in honest.ledger.round_events(2):
        assert (DigestKind.BLOCK, 2, None) in places(honest_index, recorded.block_hash)
        found = places(honest_index, recorded.transaction_hash)
        assert found == {(DigestKind.TRANSACTION, 2, None)}
        if isinstance(recorded.event, UpdatesCommitted):
            pairs = zip(recorded.event.clients, recorded.event.commitments, strict=True)
            for client, commitment in pairs:
                assert places(honest_index, commitment) == {(DigestKind.COMMITMENT, 2, client)}


def test_bans(honest_index: Index, honest: Run) -> None:
    for ban in honest.ledger.bans():
        assert places(honest_index, ban.head) == {(DigestKind.HEAD, ban.round, ban.client)}


def test_what_belongs_to_the_deployment(honest_index: Index, honest: Run) -> None:
    fixed = honest.ledger.deployment()
    assert places(honest_index, fixed.config) == {(DigestKind.CONFIGURATION, None, None)}
    assert places(honest_index, fixed.registry) == {(DigestKind.REGISTRY, None, None)}
    assert places(honest_index, fixed.model) == {(DigestKind.INITIAL_MODEL, None, None)}
    seed = first_seed(fixed.config, NO_DIGEST)
    assert places(honest_index, seed) == {(DigestKind.SEED, 1, None)}
    assert places(honest_index, honest.chain.genesis_hash) == {(DigestKind.GENESIS, None, None)}
    address = bytes.fromhex(honest.ledger.address[2:])
    assert places(honest_index, address) == {(DigestKind.CONTRACT, None, None)}
    own = honest.registry[5].address
    assert places(honest_index, own) == {(DigestKind.CLIENT, None, 5)}


def test_nothing_is_made_up(honest_index: Index) -> None:
    for nothing in (sha256(b"nothing"), NO_DIGEST, bytes(20), b""):
        assert places(honest_index, nothing) == set()


def test_no_more_than_asked_for(honest_index: Index, honest: Run) -> None:
    event = honest.outcome(2)
    with honest_index.reading() as reading:
        assert reading.look_up(event.model, 0) == []


def test_the_index_finds_every_digest_that_rounds_contain(
    honest: Run, history: IndexedHistory
) -> None:
    true = ChainHistory.of(honest.ledger, honest.blobs)
    rows = history._connection.execute(select(DIGEST.c.digest)).scalars().all()
    assert len(rows) > 100
    found = 0
    for digest in map(Digest, {*rows, bytes(32)}):
        places = true.occurrences(digest, 0, 100)
        assert history.occurrences(digest, 0, 100) == places
        found += len(places)
    assert found == len(rows), "there is none that only one of them knows"
    assert true.cache.digests.rounds == true.newest(), "final rounds are read through once"


def test_a_digest_that_stands_everywhere_is_told_page_by_page(
    honest: Run, database: Database
) -> None:
    """Whoever publishes the same bytes again and again makes a long list, but no long answer."""
    indexed(database, honest.ledger, NOBODYS_BLOBS)
    same = Digest(bytes(range(32)))
    with database.transaction() as connection:
        connection.exec_driver_sql(
            "INSERT INTO digest WITH RECURSIVE n(i) AS (SELECT 1 UNION SELECT i + 1 FROM n "
            "WHERE i < 5000) SELECT ?, 1, 6, i, i % 7 FROM n",
            (same,),
        )
    index = Index(database.path or "")
    with index.reading() as reading:
        own = reading.history(honest.chain.genesis_hash, honest.ledger.address, NOBODYS_BLOBS)
        cursor, rounds = None, list[int | None]()
        while True:
            page = digest_page(own, same, 1_000, cursor)
            assert len(page["items"]) <= 1_000
            rounds += [one["round"] for one in page["items"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
    assert rounds == list(range(1, 5_001))
    index.close()


def test_a_long_history_takes_an_index(honest: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.history.digest_search.MAX_ROUNDS_WITHOUT_INDEX", 4)
    history = ChainHistory.of(honest.ledger, honest.blobs)
    with pytest.raises(TooLongError, match=r"5 rounds are too many .* cmfl index build makes one"):
        history.occurrences(honest.outcome(1).model, 0, 1)
