"""The blocks' logs as a SQL table: the cost of a query follows its result, not the history.

The row id is `block << 20 | log index`: chain order, contained in every index, so a range of blocks
is a range of row ids. The index of a query is chosen here: SQLite, without statistics, would
consider contract and event more selective than, for example, a round number in the second topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from ledger.chain.ports import TopicFilter

if TYPE_CHECKING:
    from eth.abc import ReceiptAPI

LOGS_PER_BLOCK_BITS = 20
_LAST_BLOCK = 2**40  # keeps row ids within 64 bits
_FILTERED = {"address", "topic0", "topic1", "topic2", "topic3"}
_NARROW_RANGE = 64  # a scan of so few blocks is faster than an index

LogRow: TypeAlias = tuple[
    int, bytes, bytes, bytes | None, bytes | None, bytes | None, bytes | None, bytes
]
"""Row id, transaction hash, address, topics 0 to 3, data."""

CREATE = """
CREATE TABLE logs (
  id INTEGER PRIMARY KEY, transaction_hash BLOB NOT NULL, address BLOB NOT NULL,
  topic0 BLOB, topic1 BLOB, topic2 BLOB, topic3 BLOB, data BLOB NOT NULL
);
CREATE INDEX logs_by_address ON logs (address);
CREATE INDEX logs_by_topic0 ON logs (topic0, address) WHERE topic0 IS NOT NULL;
CREATE INDEX logs_by_topic1 ON logs (topic1, topic0) WHERE topic1 IS NOT NULL;
CREATE INDEX logs_by_topic2 ON logs (topic2, topic0) WHERE topic2 IS NOT NULL;
CREATE INDEX logs_by_topic3 ON logs (topic3, topic0) WHERE topic3 IS NOT NULL;
"""

INSERT = "INSERT INTO logs VALUES (?, ?, ?, ?, ?, ?, ?, ?)"

COLUMNS = "id, transaction_hash, address, topic0, topic1, topic2, topic3, data"


def row_id(block_number: int, log_index: int) -> int:
    """Return the row id of a log, which orders logs as the chain does."""
    return block_number << LOGS_PER_BLOCK_BITS | log_index


def position(identifier: int) -> tuple[int, int]:
    """Return block number and log index of a row id."""
    return identifier >> LOGS_PER_BLOCK_BITS, identifier & ((1 << LOGS_PER_BLOCK_BITS) - 1)


def rows_of_receipt(
    block_number: int, first_log: int, transaction_hash: bytes, receipt: ReceiptAPI
) -> list[LogRow]:
    """Return the rows of one transaction's logs.

    Args:
        first_log: number of logs of the block's earlier transactions.
    """
    rows: list[LogRow] = []
    for log_index, log in enumerate(receipt.logs, start=first_log):
        topics = [topic.to_bytes(32, "big") for topic in log.topics]
        topic0, topic1, topic2, topic3 = [*topics, None, None, None, None][:4]
        identifier = row_id(block_number, log_index)
        address, data = bytes(log.address), bytes(log.data)
        rows.append((identifier, transaction_hash, address, topic0, topic1, topic2, topic3, data))
    return rows


def rows_of_block(
    block_number: int, transaction_hashes: Sequence[bytes], receipts: Sequence[ReceiptAPI]
) -> list[LogRow]:
    """Return the rows of all logs of a block, in order."""
    rows: list[LogRow] = []
    for transaction_hash, receipt in zip(transaction_hashes, receipts, strict=True):
        rows += rows_of_receipt(block_number, len(rows), transaction_hash, receipt)
    return rows


def select(
    address: bytes | None,
    topics: Sequence[TopicFilter],
    from_block: int,
    to_block: int,
    *,
    limit: int | None,
    descending: bool,
) -> tuple[str, list[object]] | None:
    """Return the query of a log filter and its parameters; None if no log can match.

    Args:
        address: the contract, 20 bytes; None for every one.
        topics: per position a topic, alternatives, or None for any.
        limit: most rows to return; None for all.
        descending: newest first.
    """
    terms = {"address": [address]} if address is not None else {}
    for number, topic in enumerate(topics):
        if topic is not None:
            terms[f"topic{number}"] = [topic] if isinstance(topic, bytes) else list(topic)
    if not all(terms.values()) or not terms.keys() <= _FILTERED or to_block < from_block:
        return None
    conditions = ["id >= ?", "id < ?"]
    parameters: list[object] = [row_id(number, 0) for number in _bounded(from_block, to_block)]
    for column, values in terms.items():
        conditions.append(f"{column} IN ({', '.join('?' * len(values))})")
        parameters += values
    query = (
        f"SELECT {COLUMNS} FROM logs {_index(set(terms), to_block - from_block)} "  # noqa: S608
        f"WHERE {' AND '.join(conditions)} ORDER BY id {'DESC' if descending else 'ASC'}"
    )
    if limit is not None:
        query += " LIMIT ?"
        parameters.append(limit)
    return query, parameters


def _index(columns: set[str], blocks: int) -> str:
    if blocks < _NARROW_RANGE:
        return "NOT INDEXED"  # scans the row ids
    for column in ("topic3", "topic2", "topic1", "topic0", "address"):
        if column in columns:
            return f"INDEXED BY logs_by_{column}"
    return "NOT INDEXED"


def _bounded(from_block: int, to_block: int) -> tuple[int, int]:
    return min(max(from_block, 0), _LAST_BLOCK), min(max(to_block + 1, 0), _LAST_BLOCK)
