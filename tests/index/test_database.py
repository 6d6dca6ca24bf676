"""An index that cannot be used says why in one sentence; nothing of anybody else's is touched."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import insert, inspect, select, text

from ledger.history.queries import RoundQuery, Span
from ledger.index.database import Database
from ledger.index.index import Index
from ledger.index.index_errors import (
    IndexDamagedError,
    IndexMissingError,
    IndexSchemaError,
    IndexStoreError,
    IndexUnreachableError,
    NotIndexedError,
)
from ledger.index.indexer import Indexer
from ledger.index.row_documents import unpack_deployment, unpack_events, unpack_start
from ledger.index.schema import BAN, CHAIN, METADATA, SCHEMA, SCHEMA_NUMBER, drop_index, make_schema
from ledger.index.updater import catch_up
from ledger.protocol.errors import ConfigurationError
from tests.index.conftest import NOBODYS_BLOBS, content, generated, indexed, made

if TYPE_CHECKING:
    from pathlib import Path


def test_the_tables_have_no_row_ids_but_a_schema_number(database: Database) -> None:
    with database.transaction() as connection:
        made_by = "SELECT sql FROM sqlite_master WHERE name = 'digest'"
        assert "WITHOUT ROWID" in str(connection.execute(text(made_by)).scalar())
        numbers = connection.execute(select(SCHEMA.c.number)).scalars().all()
    assert numbers == [SCHEMA_NUMBER]
    assert make_schema(database) is None


@pytest.mark.parametrize("schema", [3, 2])
def test_an_index_of_an_earlier_schema_is_built_anew(
    database: Database, index_file: Path, schema: int
) -> None:
    chain = generated(6)  # no record is published
    indexed(database, chain.ledger)
    before = content(database)
    assert before["missing_documents"]
    database.close()
    with sqlite3.connect(index_file) as connection:
        connection.execute(f"UPDATE index_schema SET number = {schema}")
        if schema == 3:  # Alembic numbered it
            connection.executescript(
                "DROP TABLE index_schema; DROP TABLE round_events; ALTER TABLE round DROP view;"
                "CREATE TABLE told (deployment INTEGER); CREATE TABLE waiting (round INTEGER);"
                "CREATE TABLE alembic_version (version_num TEXT)"
            )
    connection.close()
    with pytest.raises(IndexSchemaError, match=f"of schema {schema}, .* run cmfl index rebuild"):
        Index(index_file)
    rebuilt = Database(index_file, read_only=False)
    assert make_schema(rebuilt) == schema
    rows = {name: rows for name, rows in content(rebuilt).items() if rows}
    assert rows == {"index_schema": [(SCHEMA_NUMBER,)]}
    indexed(rebuilt, chain.ledger)
    assert content(rebuilt) == before
    with rebuilt.transaction() as connection_:
        names = set(inspect(connection_).get_table_names())
    assert names == set(METADATA.tables)
    rebuilt.close()


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
        connection.execute(text("UPDATE index_schema SET number = 99"))
    for use in (Index, made):
        with pytest.raises(IndexSchemaError, match="an index of schema 99"):
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
        with pytest.raises(IndexDamagedError, match="run cmfl index rebuild"):
            use(path)
    with pytest.raises(IndexSchemaError, match="or is damaged"):
        drop_index(path, is_own=False)
    assert drop_index(path, is_own=True)


def test_a_round_that_was_altered_is_named(database: Database, index_file: Path) -> None:
    chain = generated(3)
    indexed(database, chain.ledger)
    with database.transaction() as connection:
        connection.execute(text("UPDATE round_events SET ended = x'c1' WHERE round = 2"))
        connection.execute(text("DELETE FROM round_events WHERE round = 3"))
    with Index(index_file).reading() as reading:
        own = reading.history(chain.genesis_hash, chain.ledger.address, NOBODYS_BLOBS)
        with pytest.raises(IndexDamagedError, match="it has not written"):
            own.round(2)
        with pytest.raises(IndexDamagedError, match="lacks round 3"):
            own.rounds(3, 4)
    for unpack in (unpack_events, unpack_start, unpack_deployment):
        for data in (b"", b"\x01", b"\x91\x01", b"\x95\x01\x02\x03\x04\x05"):
            with pytest.raises(IndexDamagedError):
                unpack(data)


@pytest.mark.parametrize(
    "spoil",
    [
        "UPDATE client SET samples = 'x'",
        "UPDATE client SET address = 'x'",
        "UPDATE round_events SET start = x'95c0c0c0c0c0'",
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
    with pytest.raises(IndexDamagedError, match="run cmfl index rebuild"):
        catch_up(Indexer(database, chain.ledger, NOBODYS_BLOBS))


def test_a_round_found_by_filter_but_missing_is_named(database: Database, index_file: Path) -> None:
    chain = generated(3)
    indexed(database, chain.ledger)
    walk = RoundQuery("rounds", view_min=0, blocks=Span(1, 1_000))
    with Index(index_file).reading() as reading:
        own = reading.history(chain.genesis_hash, chain.ledger.address, NOBODYS_BLOBS)
        assert [one.round for one in own.page(walk, 9, None).rounds] == [3, 2, 1]
    with database.transaction() as connection:
        connection.execute(text("DELETE FROM round_events WHERE round = 2"))
    with Index(index_file).reading() as reading:
        own = reading.history(chain.genesis_hash, chain.ledger.address, NOBODYS_BLOBS)
        with pytest.raises(IndexDamagedError, match="lacks round 2"):
            own.page(walk, 9, None)


def test_a_driver_message_is_an_index_error(database: Database, index_file: Path) -> None:
    chain = generated(2)
    indexed(database, chain.ledger)
    with database.transaction() as connection:
        connection.execute(text("DROP TABLE round_events"))
    index = Index(index_file)
    with (
        pytest.raises(IndexUnreachableError, match="no such table: round_events"),
        index.reading() as one,
    ):
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
