"""An index that cannot be used says why in one sentence; nothing of anybody else's is touched."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import insert, text

from ledger.history.queries import RoundQuery, Span
from ledger.index.catching_up import catch_up
from ledger.index.database import Database
from ledger.index.errors import (
    IndexDamagedError,
    IndexMissingError,
    IndexSchemaError,
    IndexStoreError,
    IndexUnreachableError,
    NotIndexedError,
)
from ledger.index.index import Index
from ledger.index.indexer import Indexer
from ledger.index.packing import unpack_events, unpack_fixed, unpack_opening
from ledger.index.removal import drop_index
from ledger.index.schema import make_schema
from ledger.index.tables import BAN, CHAIN, METADATA
from ledger.protocol.errors import ConfigurationError
from tests.index.conftest import NOBODYS_BLOBS, content, generated, indexed, made

if TYPE_CHECKING:
    from pathlib import Path


def test_the_migrations_make_the_tables_that_queries_name(database: Database) -> None:
    with database.transaction() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, METADATA) == []
        made_by = "SELECT sql FROM sqlite_master WHERE name = 'digest'"
        assert "WITHOUT ROWID" in str(connection.execute(text(made_by)).scalar())
    make_schema(database)


def test_an_index_of_the_first_version_is_moved_on(database: Database, index_file: Path) -> None:
    chain = generated(6)  # no record is published
    indexed(database, chain.ledger)
    before = content(database)
    assert before["waiting"]
    database.close()
    with sqlite3.connect(index_file) as connection:
        connection.executescript(
            "DROP TABLE waiting;"
            "ALTER TABLE deployment DROP COLUMN waiting;"
            "ALTER TABLE deployment DROP COLUMN records_missing;"
            "CREATE INDEX round_incomplete ON round (deployment, round)"
            " WHERE (record = 2 OR incidents = 2);"
            "UPDATE alembic_version SET version_num = '1'"
        )
    connection.close()
    with pytest.raises(IndexSchemaError, match="an index of version '1'"):
        Index(index_file)
    moved = made(index_file)
    assert not any(content(moved).values()), "nothing that an older program has packed is kept"
    indexed(moved, chain.ledger)
    assert content(moved) == before
    with moved.transaction() as migrated:
        assert compare_metadata(MigrationContext.configure(migrated), METADATA) == []
    moved.close()


def test_an_index_that_is_not_there_is_missed(tmp_path: Path) -> None:
    with pytest.raises(IndexMissingError, match=r"no index at .*: cmfl index build makes it"):
        Index(tmp_path / "index.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_something_else_is_refused_and_left(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE things (name TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(IndexSchemaError, match="holds no index"):
        Index(path)
    with pytest.raises(IndexSchemaError, match="tables of something else"):
        made(path)
    with pytest.raises(IndexSchemaError, match="left as it is"):
        drop_index(path, is_own=False)
    assert path.read_bytes() == before


def test_an_index_of_a_newer_program_is_refused(database: Database, index_file: Path) -> None:
    with database.transaction() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '99'"))
    for use in (Index, made):
        with pytest.raises(IndexSchemaError, match="an index of version '99'"):
            use(index_file)
    assert drop_index(index_file, is_own=False)
    assert not index_file.exists()
    assert not drop_index(index_file, is_own=False)


@pytest.mark.parametrize(
    "data", [b"no database at all" * 500, b"SQLite format 3\0" + b"\xff" * 9000]
)
def test_a_damaged_file_is_named(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "index.sqlite"
    path.write_bytes(data)
    for use in (Index, made):
        with pytest.raises(IndexDamagedError, match="drop the index and build it again"):
            use(path)
    with pytest.raises(IndexSchemaError, match="or is damaged"):
        drop_index(path, is_own=False)
    assert drop_index(path, is_own=True)


def test_a_round_that_was_altered_is_named(database: Database, index_file: Path) -> None:
    chain = generated(3)
    indexed(database, chain.ledger)
    with database.transaction() as connection:
        connection.execute(text("UPDATE told SET ended = x'c1' WHERE round = 2"))
        connection.execute(text("DELETE FROM told WHERE round = 3"))
    with Index(index_file).reading() as reading:
        own = reading.history(chain.genesis_hash, chain.ledger.address, NOBODYS_BLOBS)
        with pytest.raises(IndexDamagedError, match="nothing it has written"):
            own.round(2)
        with pytest.raises(IndexDamagedError, match="lacks round 3"):
            own.rounds(3, 4)
    for unpack in (unpack_events, unpack_opening, unpack_fixed):
        for data in (b"", b"\x01", b"\x91\x01", b"\x95\x01\x02\x03\x04\x05"):
            with pytest.raises(IndexDamagedError):
                unpack(data)


@pytest.mark.parametrize(
    "spoil",
    [
        "UPDATE client SET samples = 'x'",
        "UPDATE client SET address = 'x'",
        "UPDATE told SET opening = x'95c0c0c0c0c0'",
        "UPDATE ban SET round = x'ff'",
        "UPDATE deployment SET head = 'x'",
    ],
)
def test_who_writes_an_index_names_what_is_damaged(database: Database, spoil: str) -> None:
    chain = generated(3)
    indexed(database, chain.ledger)
    with database.transaction() as connection:
        connection.execute(insert(BAN).values(deployment=1, client=0, round=1, block=1))
        connection.execute(text(spoil))
    chain.play(1, abandoned=0.0)
    with pytest.raises(IndexDamagedError, match="build it again"):
        catch_up(Indexer(database, chain.ledger, NOBODYS_BLOBS))


def test_a_round_found_by_filter_but_missing_is_named(database: Database, index_file: Path) -> None:
    chain = generated(3)
    indexed(database, chain.ledger)
    walk = RoundQuery("rounds", view_min=0, blocks=Span(1, 1_000))
    with Index(index_file).reading() as reading:
        own = reading.history(chain.genesis_hash, chain.ledger.address, NOBODYS_BLOBS)
        assert [one.round for one in own.page(walk, 9, None).rounds] == [3, 2, 1]
    with database.transaction() as connection:
        connection.execute(text("DELETE FROM told WHERE round = 2"))
    with Index(index_file).reading() as reading:
        own = reading.history(chain.genesis_hash, chain.ledger.address, NOBODYS_BLOBS)
        with pytest.raises(IndexDamagedError, match="lacks round 2"):
            own.page(walk, 9, None)


def test_a_driver_message_is_an_index_error(database: Database, index_file: Path) -> None:
    chain = generated(2)
    indexed(database, chain.ledger)
    with database.transaction() as connection:
        connection.execute(text("DROP TABLE told"))
    index = Index(index_file)
    with pytest.raises(IndexUnreachableError, match="no such table: told"), index.reading() as one:
        one.history(chain.genesis_hash, chain.ledger.address, NOBODYS_BLOBS).round(1)
    index.close()


def test_a_reader_writes_nothing(database: Database, index_file: Path) -> None:
    reader = Database(index_file)
    with pytest.raises(IndexUnreachableError, match="readonly"), reader.transaction() as connection:
        connection.execute(insert(CHAIN).values(chain_id="1", genesis=bytes(32)))
    reader.close()


def test_a_reading_does_not_move_and_does_not_wait(database: Database, index_file: Path) -> None:
    chain = generated(3)
    indexed(database, chain.ledger)
    index = Index(index_file)
    with index.reading() as reading:
        own = reading.history(chain.genesis_hash, chain.ledger.address, NOBODYS_BLOBS)
        before = own.rounds(1, own.newest())
        chain.play(2)
        indexed(database, chain.ledger)
        assert own.rounds(1, own.newest()) == before
        with index.reading() as later:
            assert later.coverage()[0].rounds == own.newest() + 2
    index.close()


def test_an_index_that_is_built_anew_is_opened_anew(index_file: Path, empty_index: Path) -> None:
    chain = generated(1)
    index = Index(index_file)
    drop_index(index_file, is_own=True)
    fresh = made(index_file)
    indexed(fresh, chain.ledger)
    with index.reading() as reading:
        assert reading.coverage()[0].rounds == 2
    index.close()
    fresh.close()


def test_a_deployment_that_is_not_indexed_is_named(honest_index: Index) -> None:
    chain = generated()
    with honest_index.reading() as reading, pytest.raises(NotIndexedError, match="is not indexed"):
        reading.history(chain.genesis_hash, chain.ledger.address, NOBODYS_BLOBS)


def test_several_chains_share_an_index(database: Database, index_file: Path) -> None:
    chains = [generated(2, seed) for seed in (1, 2)]
    for chain in chains:
        indexed(database, chain.ledger)
    with Index(index_file).reading() as reading:
        first, second = (
            reading.history(one.genesis_hash, one.ledger.address, NOBODYS_BLOBS) for one in chains
        )
        assert str(first.path) != str(second.path)
        assert first.round(1) != second.round(1)
        places = reading.look_up(bytes.fromhex(chains[0].ledger.address[2:]))
    assert {place.genesis for place in places} == {one.genesis_hash for one in chains}


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:///index.sqlite", "is of 'sqlite'"),
        ("no url://", "no URL of a database"),
        ("mysql://somewhere/index", "is of 'mysql'"),
    ],
)
def test_other_urls_are_refused(url: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Database(url)


def test_an_unresponsive_server_is_named_without_its_password() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(IndexUnreachableError) as caught:
        Index("postgresql://reader:secret@127.0.0.1:1/index")
    assert "127.0.0.1:1/index" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_dropped_index_is_built_to_the_same_content(index_file: Path) -> None:
    chain = generated(5)
    contents = []
    for _ in range(2):
        database = made(index_file)
        indexed(database, chain.ledger)
        contents.append(content(database))
        database.close()
        drop_index(index_file, is_own=True)
    assert contents[0] == contents[1]


def test_an_index_in_an_absent_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(IndexStoreError, match="unable to open database file"):
        made(tmp_path / "nowhere" / "index.sqlite")
