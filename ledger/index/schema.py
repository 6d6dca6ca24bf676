"""The tables of the index and their schema number: an index of another number is built anew.

Everything in an index comes from chain and blobs, so nothing is migrated. Narrow columns serve
searches; answers come from documents (`row_documents.py`).
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    insert,
    inspect,
    select,
)

from ledger.history.participation import ParticipationCounts
from ledger.index.database import Database
from ledger.index.index_errors import IndexDamagedError, IndexSchemaError, IndexStoreError

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Connection

SCHEMA_NUMBER = 5
"""Goes up with every change to a table or a document."""

METADATA = MetaData()

SCHEMA = Table("index_schema", METADATA, Column("number", Integer, primary_key=True))

CHAIN = Table(
    "chain",
    METADATA,
    Column("id", Integer, primary_key=True),
    # A chain id has up to 78 digits.
    Column("chain_id", Text, nullable=False),
    Column("genesis", LargeBinary, nullable=False, unique=True),
)

DEPLOYMENT = Table(
    "deployment",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("chain", ForeignKey("chain.id"), nullable=False),
    Column("address", LargeBinary, nullable=False),
    Column("from_block", BigInteger, nullable=False),
    Column("fixed", LargeBinary, nullable=False),
    # The block up to which the chain is read, and the contract's state after it.
    Column("block", BigInteger, nullable=False),
    Column("final", BigInteger, nullable=False),
    Column("view", LargeBinary, nullable=False),
    Column("newest", BigInteger, nullable=False),
    Column("ended", BigInteger, nullable=False),
    Column("head", LargeBinary, nullable=False),
    Column("registered", Integer, nullable=False),
    Column("banned", Integer, nullable=False),
    # Caches of a deployment are valid for one number of rewinds.
    Column("rewinds", Integer, nullable=False),
    Column("compared", SmallInteger, nullable=False),
    # Rounds that miss a document, and those among them that miss their record.
    Column("waiting", BigInteger, nullable=False, server_default="0"),
    Column("records_missing", BigInteger, nullable=False, server_default="0"),
    Index("deployment_by_address", "chain", "address", unique=True),
)
"""A deployment and how far it is indexed: `ended` rounds without a gap, and the head after them."""

CHECKPOINT = Table(
    "checkpoint",
    METADATA,
    Column("deployment", Integer, primary_key=True),
    Column("block", BigInteger, primary_key=True),
    Column("hash", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)
"""Blocks that were read: those that are not final, and the newest final one.

A block's hash commits to all blocks before it: while the chain has the hash of one of these, all
that was read up to it is still true.
"""

CLIENT = Table(
    "client",
    METADATA,
    Column("deployment", Integer, primary_key=True),
    Column("client", Integer, primary_key=True),
    Column("address", LargeBinary, nullable=False),
    # n_k is below 2^64.
    Column("samples", Text, nullable=False),
    Index("client_by_address", "address"),
    sqlite_with_rowid=False,
)

BAN = Table(
    "ban",
    METADATA,
    Column("deployment", Integer, primary_key=True),
    Column("client", Integer, primary_key=True),
    Column("round", BigInteger, nullable=False),
    Column("block", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

ROUND = Table(
    "round",
    METADATA,
    Column("deployment", Integer, primary_key=True),
    Column("round", BigInteger, primary_key=True),
    Column("opened_block", BigInteger, nullable=False),
    Column("status", SmallInteger, nullable=False),
    Column("view", BigInteger, nullable=False),
    Column("ended_block", BigInteger),
    Column("ended_time", BigInteger),
    Column("record", SmallInteger, nullable=False),
    Column("incidents", SmallInteger, nullable=False),
    Index("round_by_block", "deployment", "ended_block", "round"),
    sqlite_with_rowid=False,
)
"""Search columns of rounds.

A page scans a bounded range of rounds, which is a range of the key: more indexes would find
nothing faster, and each would have to be written.
"""

ROUND_EVENTS = Table(
    "round_events",
    METADATA,
    Column("deployment", Integer, primary_key=True),
    Column("round", BigInteger, primary_key=True),
    Column("start", LargeBinary, nullable=False),
    Column("activity", LargeBinary, nullable=False),
    Column("ended", LargeBinary),
)
"""Documents of a round: its start, commitments and bans, and its end."""

MISSING = Table(
    "missing_documents",
    METADATA,
    Column("deployment", Integer, primary_key=True),
    Column("round", BigInteger, primary_key=True),
    Column("record", SmallInteger, nullable=False),
    Column("incidents", SmallInteger, nullable=False),
    sqlite_with_rowid=False,
)
"""The rounds that miss a document, with the states of their documents; most histories have none.

A separate table: SQLite prefers the key of a table to an index of a few of its rows.
"""

PARTICIPATION = Table(
    "participation",
    METADATA,
    Column("deployment", Integer, primary_key=True),
    Column("client", Integer, primary_key=True),
    Column("round", BigInteger, primary_key=True),
    Column("role", SmallInteger, nullable=False),
    Column("outcome", SmallInteger, nullable=False),
    Column("empty_seat", Boolean, nullable=False),
    Column("scores", SmallInteger, nullable=False),
    Column("voted", SmallInteger, nullable=False),
    Column("document", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)
"""Participations by client, so that a client's history is one range of the key."""

COUNTED = tuple(each.name for each in fields(ParticipationCounts))
COUNTS = Table(
    "counts",
    METADATA,
    Column("deployment", Integer, primary_key=True),
    Column("client", Integer, primary_key=True),
    *(Column(name, BigInteger, nullable=False) for name in COUNTED),
    sqlite_with_rowid=False,
)
"""Each client's counts over the rounds that have ended."""

DIGEST = Table(
    "digest",
    METADATA,
    Column("digest", LargeBinary, primary_key=True),
    Column("deployment", Integer, primary_key=True),
    Column("kind", SmallInteger, primary_key=True),
    Column("round", BigInteger, primary_key=True),
    # -1 for a digest that belongs to no client.
    Column("client", Integer, primary_key=True),
    sqlite_with_rowid=False,
)
"""The occurrences of each digest; round 0 is the deployment as a whole.

No second index by round: it would double the largest table, and only a reorganisation, which
reads the table through, needs it.
"""

OF_DEPLOYMENT = (
    CHECKPOINT,
    CLIENT,
    BAN,
    ROUND,
    ROUND_EVENTS,
    MISSING,
    PARTICIPATION,
    COUNTS,
    DIGEST,
)
"""The tables whose rows belong to one deployment."""

_EARLIER_TABLES = tuple(Table(name, MetaData()) for name in ("alembic_version", "told", "waiting"))
"""Tables of the schemas 1 to 3, which were numbered by Alembic."""
_SQLITE_FILES = ("", "-wal", "-shm")


def require_schema(database: Database) -> None:
    """Accept a database whose tables have this program's schema number.

    Raises:
        IndexSchemaError: they have another one, or there is no index.
        IndexStoreError: it cannot be read.
    """
    with database.transaction() as connection:
        number = _schema_number(connection)
    if number is None:
        raise IndexSchemaError(f"{database.shown} holds no index: cmfl index build makes it")
    if number != SCHEMA_NUMBER:
        raise IndexSchemaError(_other_schema(database, number))


def make_schema(database: Database) -> int | None:
    """Create the tables of an empty database; an index of an earlier schema is emptied for it.

    Returns:
        The earlier schema's number, None if there was none.

    Raises:
        IndexSchemaError: it holds other tables, or an index of a newer program.
        IndexStoreError: it cannot be written.
    """
    with database.transaction() as connection:
        if _is_current(connection, database):
            return None
    database.write_ahead()
    with database.transaction() as connection:
        # Another process may have made them meanwhile.
        if _is_current(connection, database):
            return None
        earlier = _schema_number(connection)
        _drop_tables(connection)
        METADATA.create_all(connection)
        connection.execute(insert(SCHEMA).values(number=SCHEMA_NUMBER))
    return earlier


def drop_index(where: Path | str, *, is_own: bool) -> bool:
    """Remove an index of any schema; say whether there was one.

    Args:
        where: its SQLite file, or the URL of its PostgreSQL database.
        is_own: whether a file has the name that a home gives to its index, so that it may be
            removed even where it is damaged.

    Raises:
        IndexSchemaError: it is something else.
        IndexStoreError: it cannot be written.
    """
    if isinstance(where, str):
        return _drop_tables_at(where)
    if not where.exists():
        return False
    if not is_own and not _holds_index(where):
        raise IndexSchemaError(
            f"{where} holds no index of this program, or is damaged: it is left as it is; remove "
            "it by hand if it is not needed"
        )
    for suffix in _SQLITE_FILES:
        path = where.with_name(f"{where.name}{suffix}")
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise IndexStoreError(f"{path} cannot be removed: {error.strerror}") from error
    return True


def _schema_number(connection: Connection) -> int | None:
    """Return the number of the index's schema, None where there is no index."""
    tables = set(inspect(connection).get_table_names())
    if SCHEMA.name in tables:
        return int(connection.execute(select(SCHEMA.c.number)).scalar() or 0)
    if {"alembic_version", CHECKPOINT.name, DIGEST.name} <= tables:
        return 3
    return None


def _is_current(connection: Connection, database: Database) -> bool:
    """Say whether the tables are this program's; refuse a newer one's and foreign ones.

    Raises:
        IndexSchemaError: they are.
    """
    number, tables = _schema_number(connection), sorted(inspect(connection).get_table_names())
    if number is None and tables:
        raise IndexSchemaError(
            f"{database.shown} holds tables of something else ({tables[0][:40]!r}): an index needs "
            "a database of its own"
        )
    if number is not None and number > SCHEMA_NUMBER:
        raise IndexSchemaError(_other_schema(database, number))
    return number == SCHEMA_NUMBER


def _other_schema(database: Database, number: int) -> str:
    return (
        f"{database.shown} holds an index of schema {number}, and this program reads schema "
        f"{SCHEMA_NUMBER}: run cmfl index rebuild"
    )


def _drop_tables(connection: Connection) -> None:
    METADATA.drop_all(connection)
    for table in _EARLIER_TABLES:
        table.drop(connection, checkfirst=True)


def _drop_tables_at(url: str) -> bool:
    database = Database(url, read_only=False)
    try:
        with database.transaction() as connection:
            if _schema_number(connection) is None:
                return False
            _drop_tables(connection)
    finally:
        database.close()
    return True


def _holds_index(path: Path) -> bool:
    database = Database(path)
    try:
        with database.transaction() as connection:
            return _schema_number(connection) is not None
    except IndexDamagedError:
        return False
    finally:
        database.close()
