"""A forged chain file: whatever is changed in it, opening it or its audit names the fault."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from ledger.audit.audit import audit
from ledger.audit.codes import Outcome, Step
from ledger.audit.report import readable
from ledger.chain.contract.deployment import connect
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.protocol.errors import ChainError
from tests.audit.honest import honest_run

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.audit.report import AuditReport
    from tests.audit.runs import Run


RECORD = "instr(key, CAST('to-score' AS BLOB)) = 0 AND instr(key, CAST('gaps' AS BLOB)) = 0"
"""All but the EVM's bookkeeping, total difficulty and gaps, which says nothing of the record."""


@dataclass
class ClosedRun:
    """A run whose chain file can be copied."""

    run: Run
    file: Path

    def forged(self, folder: Path, statement: str, *values: object) -> AuditReport | ChainError:
        """Return what comes of a copy in which one statement was carried out."""
        path = folder / "forged.sqlite"
        shutil.copy(self.file, path)
        with sqlite3.connect(path) as database:
            changed = database.execute(statement, values).rowcount
        database.close()
        assert changed > 0, statement
        try:
            with EmbeddedReader.open(path) as chain:
                return audit(connect(chain, self.run.manifest), self.run.blobs)
        except ChainError as error:
            return error

    def rows(self, query: str) -> list[tuple[object, ...]]:
        database = sqlite3.connect(self.file)
        found = database.execute(query).fetchall()
        database.close()
        return found


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> ClosedRun:
    folder = tmp_path_factory.mktemp("closed")
    run = honest_run(folder)
    run.chain.close()
    return ClosedRun(run, folder / "chain.sqlite")


def require_named(found: AuditReport | ChainError) -> None:
    """The file is refused at opening, or step 2 fails with what is wrong with it."""
    if isinstance(found, ChainError):
        assert str(found)
        return
    assert found.outcome is Outcome.FAILED, readable(found)
    assert found.step(Step.HEAD).contradiction is not None, readable(found)


def test_the_unchanged_file_passes(closed: ClosedRun, tmp_path: Path) -> None:
    found = closed.forged(tmp_path, "UPDATE logs SET data = data")
    assert not isinstance(found, ChainError)
    assert found.outcome is Outcome.PASSED, readable(found)


@pytest.mark.parametrize("column", ["data", "topic0", "topic1", "transaction_hash", "address"])
def test_a_changed_row_of_the_log_table_is_named(
    closed: ClosedRun, tmp_path: Path, column: str
) -> None:
    for identifier, value in closed.rows(f"SELECT id, {column} FROM logs ORDER BY id"):
        if not isinstance(value, bytes):
            continue
        wrong = value[:-1] + bytes([value[-1] ^ 1])
        require_named(
            closed.forged(tmp_path, f"UPDATE logs SET {column} = ? WHERE id = ?", wrong, identifier)
        )


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM logs WHERE id = ?",
        "UPDATE logs SET id = id + 500 WHERE id = ?",
        "UPDATE logs SET id = id + (1 << 30) WHERE id = ?",
        "INSERT INTO logs SELECT id + 1000, transaction_hash, address, topic0, topic1, topic2, "
        "topic3, data FROM logs WHERE id = ?",
    ],
)
def test_a_hidden_moved_or_repeated_row_is_named(
    closed: ClosedRun, tmp_path: Path, statement: str
) -> None:
    for (identifier,) in closed.rows("SELECT id FROM logs ORDER BY id DESC"):
        require_named(closed.forged(tmp_path, statement, identifier))


@pytest.mark.parametrize("end", ["front", "back"])
def test_changed_blocks_transactions_receipts_and_states_are_named(
    closed: ClosedRun, tmp_path: Path, end: str
) -> None:
    rows = closed.rows(f"SELECT key, value FROM kv WHERE {RECORD} ORDER BY key")
    for key, value in rows[:: max(1, len(rows) // 40)]:
        assert isinstance(value, bytes)
        flip = [value[0] ^ 1] if end == "front" else [value[-1] ^ 1]
        wrong = bytes(flip) + value[1:] if end == "front" else value[:-1] + bytes(flip)
        require_named(closed.forged(tmp_path, "UPDATE kv SET value = ? WHERE key = ?", wrong, key))


def test_missing_blocks_transactions_and_receipts_are_named(
    closed: ClosedRun, tmp_path: Path
) -> None:
    query = f"SELECT key FROM kv WHERE {RECORD} AND length(key) != 32 ORDER BY key"
    lookups = closed.rows(query)
    for (key,) in lookups[:: max(1, len(lookups) // 40)]:
        require_named(closed.forged(tmp_path, "DELETE FROM kv WHERE key = ?", key))


def test_another_chain_id_or_genesis_is_refused(closed: ClosedRun, tmp_path: Path) -> None:
    for name, value in (("chain_id", "1"), ("genesis_hash", "00" * 32)):
        statement = "UPDATE meta SET value = ? WHERE name = ?"
        require_named(closed.forged(tmp_path, statement, value, name))
