"""Indexes of small histories: of a real run with every fault, and of generated rounds that fork."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import select

from benchmarks.generated_rounds import ChainSizes, GeneratedChain
from ledger.index.database import Database
from ledger.index.index import Index
from ledger.index.indexer import Indexer
from ledger.index.schema import CHECKPOINT, DEPLOYMENT, METADATA, make_schema
from ledger.index.updater import catch_up
from ledger.storage.blobs import MemoryBlobs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.index.indexed_history import IndexedHistory
    from ledger.index.indexer import IndexingProgress
    from ledger.storage.blobs import BlobReader
    from tests.audit.runs import Run

SMALL = ChainSizes(clients=12, trainers=4, members=3, rounds=30)
NOBODYS_BLOBS = MemoryBlobs()


def generated(rounds: int = 0, seed: int = 0, sizes: ChainSizes = SMALL) -> GeneratedChain:
    chain = GeneratedChain(sizes, seed)
    chain.register()
    chain.play(rounds, abandoned=0.2)
    return chain


def made(where: Path | str) -> Database:
    """Return an empty index, open for writing."""
    database = Database(where, read_only=False)
    make_schema(database)
    return database


def indexed(
    database: Database, ledger: CommitteeLedger, blobs: BlobReader = NOBODYS_BLOBS, blocks: int = 7
) -> IndexingProgress:
    """Index a deployment up to the newest block."""
    return catch_up(Indexer(database, ledger, blobs, blocks=blocks))


def content(database: Database) -> dict[str, list[Any]]:
    """Return all rows that do not tell how they came to be."""
    found = {}
    with database.transaction() as connection:
        for table in METADATA.sorted_tables:
            columns = [c for c in table.c if (table, c.name) != (DEPLOYMENT, "rewinds")]
            if table is not CHECKPOINT:
                rows = connection.execute(select(*columns)).all()
                found[table.name] = sorted(rows, key=repr)
    return found


@pytest.fixture(scope="session")
def empty_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of nothing, to copy: that is faster than to make one."""
    path = tmp_path_factory.mktemp("index") / "empty.sqlite"
    made(path).close()
    return path


@pytest.fixture
def index_file(empty_index: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(empty_index, tmp_path / "index.sqlite"))


@pytest.fixture
def database(index_file: Path) -> Iterator[Database]:
    database = Database(index_file, read_only=False)
    yield database
    database.close()


@pytest.fixture(scope="session")
def honest_index(
    honest: Run, empty_index: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Index]:
    """The index of one honest run; nobody may change it."""
    path = shutil.copy(empty_index, tmp_path_factory.mktemp("honest-index") / "index.sqlite")
    database = Database(path, read_only=False)
    indexed(database, honest.ledger, honest.blobs)
    database.close()
    index = Index(path)
    yield index
    index.close()


@pytest.fixture
def history(honest: Run, honest_index: Index) -> Iterator[IndexedHistory]:
    with honest_index.reading() as reading:
        yield reading.history(
            honest.chain.genesis_hash, honest.ledger.address, honest.blobs, honest.ledger
        )
