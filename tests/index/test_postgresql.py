"""The index in PostgreSQL: the same content, and a role that can only read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, insert, text

from ledger.history.chain_history import ChainHistory
from ledger.history.pages import read_page
from ledger.history.queries import RoundQuery
from ledger.history.status import AskedRole
from ledger.index.database import Database
from ledger.index.index import Index
from ledger.index.index_errors import IndexSchemaError, IndexUnreachableError
from ledger.index.schema import CHAIN, SCHEMA_NUMBER, drop_index, make_schema
from ledger.protocol.types import ClientId
from tests.index.conftest import NOBODYS_BLOBS, content, generated, indexed, made
from tests.index.postgresql import server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.audit.runs import Run


@pytest.fixture(scope="module")
def where() -> Iterator[str]:
    pytest.importorskip("psycopg")
    with server() as found:
        yield found


def url(where: str, name: str) -> str:
    """Return the URL of a new database."""
    admin = create_engine(
        f"postgresql+psycopg://{where.format(database='postgres')}", isolation_level="AUTOCOMMIT"
    )
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    admin.dispose()
    return f"postgresql://{where.format(database=name)}"


def test_has_the_content_that_sqlite_has(where: str, database: Database, honest: Run) -> None:
    own = url(where, "content")
    other = made(own)
    chain = generated(6)
    for one in (database, other):
        indexed(one, honest.ledger, honest.blobs)
        indexed(one, chain.ledger, blocks=3)
        fork = chain.fork(chain.head().number, 1)
        fork.ban()
        fork.play(1)
        indexed(one, fork.ledger)
    assert content(database) == content(other)
    true = ChainHistory.of(honest.ledger, honest.blobs)
    index = Index(own)
    with index.reading() as reading:
        found = reading.history(honest.chain.genesis_hash, honest.ledger.address, honest.blobs)
        assert found.rounds(1, 5) == true.rounds(1, 5)
        assert found.tally() == true.tally()
        for role in (AskedRole.TRAINED, AskedRole.REFUSED, AskedRole.VOTED):
            walk = RoundQuery("rounds", client=ClientId(3), role=role, view_min=0)
            assert found.page(walk, 9, None) == read_page(true, walk, 9, None)
        assert len(reading.look_up(honest.outcome(1).model)) == 1
        assert reading.look_up(honest.registry[2].address)
    index.close()
    other.close()
    assert drop_index(own, is_own=False)
    assert not drop_index(own, is_own=False)
    with pytest.raises(IndexSchemaError, match="holds no index"):
        Index(own)


def test_a_fork_is_followed(where: str, database: Database) -> None:
    other = made(url(where, "forks"))
    chain = generated(4)
    chain.final = 6
    for one in (database, other):
        indexed(one, chain.ledger)
    fork = chain.fork(8, 3)
    fork.play(5)
    for one in (database, other):
        indexed(one, fork.ledger)
    assert content(database) == content(other)
    other.close()


def test_an_index_of_an_earlier_schema_is_built_anew(where: str) -> None:
    own = url(where, "earlier")
    database, chain = made(own), generated(2)
    indexed(database, chain.ledger)
    before = content(database)
    with database.transaction() as connection:
        connection.execute(text("UPDATE index_schema SET number = 1"))
    with pytest.raises(IndexSchemaError, match="run cmfl index rebuild"):
        Index(own)
    assert make_schema(database) == 1
    assert content(database)["index_schema"] == [(SCHEMA_NUMBER,)]
    indexed(database, chain.ledger)
    assert content(database) == before
    database.close()


def test_a_role_that_may_only_select_can_serve(where: str) -> None:
    own = url(where, "roles")
    writer = made(own)
    chain = generated(2)
    indexed(writer, chain.ledger)
    with writer.transaction() as connection:
        connection.execute(text("CREATE ROLE cmfl_reader LOGIN"))
        connection.execute(text("GRANT SELECT ON ALL TABLES IN SCHEMA public TO cmfl_reader"))
    user = where.partition("@")[0]
    as_reader = own.replace(f"//{user}@", "//cmfl_reader@")
    index = Index(as_reader)
    with index.reading() as reading:
        found = reading.history(chain.genesis_hash, chain.ledger.address, NOBODYS_BLOBS)
        assert found.newest() == 3
        assert found.stands_at(chain.head())
    index.close()
    for each in (Database(as_reader), Database(own), Database(as_reader, read_only=False)):
        refused = pytest.raises(IndexUnreachableError, match=r"read-only|permission denied")
        with refused, each.transaction() as connection:
            connection.execute(insert(CHAIN).values(chain_id="1", genesis=bytes(32)))
        each.close()
    writer.close()
