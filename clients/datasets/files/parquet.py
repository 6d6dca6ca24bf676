"""A reader of Parquet columns, whose file may be damaged or hostile.

The order is: size of the file, rows and sizes that its footer states, types of the columns, then
rows, some thousands at a time. Text and images stay dictionaries until the length of each entry is
checked, as a small file can repeat one long entry a billion times. A page is still unpacked at its
stated size, at most 2 GiB.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

from clients.datasets.files.extra import imported
from clients.datasets.files.lines import quoted
from ledger.protocol.errors import ConfigurationError

MAX_FILE_BYTES = 8 * 2**30
MAX_ROWS = 10_000_000
MAX_GROUP_BYTES = 2**30
LONGEST_ENTRY = 65_536

_BATCH_ROWS = 4096
_LONGEST_NAME = 2**20
_MOST_ENTRIES = 2**20
_TEXTS = ("string", "large_string")
_BYTES = ("binary", "large_binary")


class Column(StrEnum):
    """Types of column content."""

    WHOLE = "whole numbers"
    TEXT = "text"
    IMAGE = "images, each a struct of bytes and path"


def column_names(path: Path) -> tuple[str, ...]:
    """Return the names of a table's columns, in their order."""
    with _opened(path) as table:
        return tuple(table.schema_arrow.names)


def read_rows(path: Path, columns: Mapping[str, Column]) -> Iterator[dict[str, Any]]:
    """Yield the columns of some rows at a time: whole numbers as int64, texts, images' bytes."""
    with _opened(path) as table:
        schema = table.schema_arrow
    for name, kind in columns.items():
        if schema.names.count(name) != 1:
            raise ConfigurationError(
                f"{path}: has the columns {quoted(schema.names)}; must have one {name!r}"
            )
        if not _is_kind(schema.field(name).type, kind):
            raise ConfigurationError(
                f"{path}: {name}: must hold {kind.value}, holds {schema.field(name).type}"
            )
    first = 0
    with _failures(path):
        for batch in read_columns(path, [*columns]):
            yield {
                name: _entries(f"{path}: {name}, from row {first}", batch.column(name), kind)
                for name, kind in columns.items()
            }
            first += batch.num_rows


def read_columns(path: Path, names: Sequence[str]) -> Iterator[Any]:
    """Yield validated Arrow batches with these columns."""
    with _opened(path) as table:
        for name in names:
            if table.schema_arrow.names.count(name) != 1:
                raise ConfigurationError(f"{path}: must have one column {name!r}")
        _require_bounds(path, table.metadata)
        rows = 0
        for batch in table.iter_batches(_BATCH_ROWS, columns=list(names), use_threads=False):
            batch.validate(full=True)
            rows += batch.num_rows
            yield batch
        if rows != table.metadata.num_rows:
            raise ConfigurationError(
                f"{path}: has {rows} rows, but states {table.metadata.num_rows}"
            )


@contextmanager
def _failures(path: Path) -> Iterator[None]:
    arrow = imported("pyarrow", "data", ".parquet files")
    try:
        yield
    except (arrow.ArrowException, OSError, ValueError, KeyError) as error:
        first = str(error).partition("\n")[0]
        raise ConfigurationError(f"{path}: not a readable .parquet file ({first})") from error


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a table; any failure while it is open becomes one kind of error."""
    with _failures(path):
        parquet = imported("pyarrow.parquet", "data", ".parquet files")
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise ConfigurationError(f"{path}: {size} bytes, more than {MAX_FILE_BYTES}")
        with parquet.ParquetFile(
            path,
            thrift_string_size_limit=_LONGEST_NAME,
            thrift_container_size_limit=_MOST_ENTRIES,
        ) as table:
            yield table


def _is_kind(type_: Any, kind: Column) -> bool:
    types = imported("pyarrow.types", "data", ".parquet files")
    value_type = type_.value_type if types.is_dictionary(type_) else type_
    match kind:
        case Column.WHOLE:
            return bool(types.is_integer(type_))
        case Column.TEXT:
            return str(value_type) in _TEXTS
        case Column.IMAGE:
            fields = (
                {field.name: str(field.type) for field in type_} if types.is_struct(type_) else {}
            )
            return fields.get("bytes") in _BYTES


def _require_bounds(path: Path, metadata: Any) -> None:
    if not 1 <= metadata.num_rows <= MAX_ROWS:
        raise ConfigurationError(f"{path}: {metadata.num_rows} rows; there may be 1 .. {MAX_ROWS}")
    for group in range(metadata.num_row_groups):
        # Not per column: with a damaged footer Arrow's `column` crashes the process.
        size = metadata.row_group(group).total_byte_size
        if not 0 <= size <= MAX_GROUP_BYTES:
            raise ConfigurationError(
                f"{path}: row group {group} unpacks to {size} bytes; there may be 0 .. "
                f"{MAX_GROUP_BYTES}"
            )


def _entries(where: str, column: Any, kind: Column) -> Any:
    """Return a column's entries: an int64 array of numbers, else a list of texts or bytes."""
    if kind is Column.IMAGE and not column.null_count:
        column = column.field("bytes")
    if column.null_count:
        raise ConfigurationError(f"{where}: {column.null_count} entries are missing")
    if kind is Column.WHOLE:
        return column.cast("int64").to_numpy()
    compute = imported("pyarrow.compute", "data", ".parquet files")
    plain = column.dictionary_decode() if hasattr(column, "dictionary_decode") else column
    longest = compute.max(compute.binary_length(plain)).as_py() or 0
    if longest > LONGEST_ENTRY:
        raise ConfigurationError(f"{where}: an entry of {longest} bytes, more than {LONGEST_ENTRY}")
    return plain.to_pylist()
