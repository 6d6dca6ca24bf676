"""A reader of Parquet columns, whose file may be damaged or hostile.

The order is: size of the file, rows and sizes that its footer states, types of the columns, then
rows, some thousands at a time. Text and images stay dictionaries until the length of each entry is
checked, as a small file can repeat one long entry a billion times. A page is still unpacked at its
stated size, at most 2 GiB.
"""

from __future__ import annotations

from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from clients.datasets.files.extra import imported
from clients.datasets.files.lines import quoted
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

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
    """Return the names of a table's columns, in their order.

    Raises:
        ConfigurationError: it is damaged or too large.
    """
    with _opened(path) as table:
        return tuple(table.schema_arrow.names)


def read_rows(path: Path, columns: Mapping[str, Column]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table, some thousands at a time.

    Args:
        path: the file.
        columns: to read, with their types.

    Yields:
        Each column by name: whole numbers as int64, text as a list of str, images as a list of
        their files' bytes.

    Raises:
        ConfigurationError: the table is damaged or too large, a column is missing or has another
            type, or an entry is missing or too long.
    """
    paths = {
        name: f"{name}.bytes" if kind is Column.IMAGE else name for name, kind in columns.items()
    }
    dictionaries = [paths[name] for name, kind in columns.items() if kind is not Column.WHOLE]
    with _opened(path) as table:
        _require_columns(path, table.schema_arrow, columns)
        _require_bounds(path, table.metadata)
    with _opened(path, dictionaries) as table:
        rows_read, stated = 0, table.metadata.num_rows
        for batch in _batches(table, list(paths.values())):
            batch.validate(full=True)  # Arrow does not check indices itself
            yield {
                name: _entries(f"{path}: {name}, from row {rows_read}", batch.column(name), kind)
                for name, kind in columns.items()
            }
            rows_read += batch.num_rows
    if rows_read != stated:
        raise ConfigurationError(f"{path}: has {rows_read} rows, but states {stated}")


def read_columns(path: Path, names: Sequence[str]) -> Iterator[Any]:
    """Yield some columns of a table as validated Arrow batches of some thousand rows.

    Raises:
        ConfigurationError: the table is damaged or too large, or a column is missing.
    """
    with _opened(path) as table:
        for name in names:
            if table.schema_arrow.names.count(name) != 1:
                raise ConfigurationError(f"{path}: must have one column {name!r}")
        _require_bounds(path, table.metadata)
        schema = table.schema_arrow
        texts = _text_paths(table.schema, names)
    with _opened(path, texts) as table:
        for batch in _batches(table, list(names)):
            batch.validate(full=True)
            yield _without_dictionaries(path, batch, schema)


def _text_paths(schema: Any, names: Sequence[str]) -> list[str]:
    """Return the paths of text and bytes in some columns, also within lists and structs."""
    columns = [schema.column(index) for index in range(len(schema))]
    return [
        column.path
        for column in columns
        if column.path.partition(".")[0] in names or column.path in names
        if column.physical_type == "BYTE_ARRAY" and column.logical_type.type != "DECIMAL"
    ]


def _without_dictionaries(path: Path, batch: Any, schema: Any) -> Any:
    """Return a batch with repeated entries written out, once their size is known.

    Raises:
        ConfigurationError: they are too large.
    """
    arrow = imported("pyarrow", "data", ".parquet files")
    for name in batch.schema.names:
        size = _text_bytes(batch.column(name))
        if size > MAX_GROUP_BYTES:
            raise ConfigurationError(
                f"{path}: {name}: {batch.num_rows} rows hold {size} bytes; there may be 0 .. "
                f"{MAX_GROUP_BYTES}"
            )
    plain = [schema.field(name) for name in batch.schema.names]
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, plain, strict=True)
    ]
    return arrow.RecordBatch.from_arrays(columns, schema=arrow.schema(plain))


def _text_bytes(column: Any) -> int:
    """Return how many bytes the entries of dictionaries take when they are written out."""
    types = imported("pyarrow.types", "data", ".parquet files")
    compute = imported("pyarrow.compute", "data", ".parquet files")
    type_ = column.type
    if types.is_dictionary(type_):
        lengths = compute.cast(compute.binary_length(column.dictionary), "int64")
        return int(compute.sum(compute.take(lengths, column.indices)).as_py() or 0)
    if types.is_struct(type_):
        return sum(_text_bytes(column.field(index)) for index in range(type_.num_fields))
    if types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_):
        return _text_bytes(column.flatten())
    return 0


def _batches(table: Any, paths: list[str]) -> Iterator[Any]:
    # Row group by row group: Arrow cannot join their dictionaries inside a struct.
    for group in range(table.num_row_groups):
        yield from table.iter_batches(
            _BATCH_ROWS, row_groups=[group], columns=paths, use_threads=False
        )


@contextmanager
def _opened(path: Path, dictionaries: list[str] | None = None) -> Iterator[Any]:
    """Open a table; any failure while it is open becomes one kind of error.

    Raises:
        ConfigurationError: there is no table, or it is damaged or too large.
    """
    arrow = imported("pyarrow", "data", ".parquet files")
    parquet = imported("pyarrow.parquet", "data", ".parquet files")
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise ConfigurationError(f"{path}: {size} bytes, more than {MAX_FILE_BYTES}")
        with parquet.ParquetFile(
            path,
            read_dictionary=dictionaries,
            thrift_string_size_limit=_LONGEST_NAME,
            thrift_container_size_limit=_MOST_ENTRIES,
        ) as table:
            yield table
    except (arrow.ArrowException, OSError, ValueError, KeyError) as error:
        first = str(error).partition("\n")[0]
        raise ConfigurationError(f"{path}: not a readable .parquet file ({first})") from error


def _require_columns(path: Path, schema: Any, columns: Mapping[str, Column]) -> None:
    for name, kind in columns.items():
        if schema.names.count(name) != 1:
            raise ConfigurationError(
                f"{path}: has the columns {quoted(schema.names)}; must have one {name!r}"
            )
        type_ = schema.field(name).type
        if not _is_kind(type_, kind):
            raise ConfigurationError(f"{path}: {name}: must hold {kind.value}, holds {type_}")


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
    if kind is Column.WHOLE:
        _require_no_gap(where, column)
        return column.cast("int64").to_numpy()
    if kind is Column.IMAGE:
        _require_no_gap(where, column)
        column = column.field("bytes")
    _require_no_gap(where, column)
    compute = imported("pyarrow.compute", "data", ".parquet files")
    longest = compute.max(compute.binary_length(column.dictionary)).as_py() or 0
    if longest > LONGEST_ENTRY:
        raise ConfigurationError(f"{where}: an entry of {longest} bytes, more than {LONGEST_ENTRY}")
    entries = column.dictionary.to_pylist()
    return [entries[index] for index in np.asarray(column.indices)]


def _require_no_gap(where: str, column: Any) -> None:
    if column.null_count:
        raise ConfigurationError(f"{where}: {column.null_count} entries are missing")
