"""Tables: lines of JSON and CSV, Parquet and Arrow.

The order is: size of the file, rows and sizes that its footer states, types of the columns, then
rows, some thousands at a time. Text and images stay dictionaries until the length of each entry is
checked, as a small file can repeat one long entry a billion times. A page is still unpacked at its
stated size, at most 2 GiB.
"""

from __future__ import annotations

import csv
import io
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.datasets.files.archives import LONGEST_TEXT, MAX_OWN_BYTES, size_of
from ledger.io.extras import install_command
from ledger.io.home import read_text
from ledger.io.parsing import parse_json
from ledger.protocol.errors import ConfigurationError


def imported(module: str, extra: str, purpose: str) -> Any:
    """Return a module of an extra; raise ConfigurationError if the extra is missing."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigurationError(
            f"{purpose} need the extra [{extra}]: {install_command(extra)}"
        ) from error


MAX_FILE_BYTES = 8 * 2**30
LONGEST_LINE = 65_536
LONGEST_TEXT_LINE = 1 << 20
"""Limit of a line of JSON Lines or of plain text, which may be a whole document."""
MOST_SHOWN = 20  # names that a message lists


def quoted(names: Sequence[str]) -> str:
    """Return the first names for a message, each in quotation marks."""
    rest = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    return f"{', '.join(map(repr, names[:MOST_SHOWN])):.400}{rest}"


def read_lines(path: Path, longest: int = LONGEST_LINE) -> Iterator[str]:
    r"""Yield the lines of a UTF-8 file with their ends, without a byte-order mark.

    Only "\n" ends a line, which has at most `longest` bytes.
    """
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise ConfigurationError(f"{path}: {size} bytes, more than {MAX_FILE_BYTES}")
        with path.open("rb") as file:
            number = 0
            while line := file.readline(longest + 1):
                number += 1
                if len(line) > longest:
                    raise ConfigurationError(f"{path}, line {number}: longer than {longest} bytes")
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: not UTF-8 text ({error})") from error
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the object of each line of a JSON Lines file; blank lines are skipped."""
    for number, line in enumerate(read_lines(path, LONGEST_TEXT_LINE), start=1):
        if not (text := line.removeprefix("\ufeff")).strip():
            continue
        try:
            row = parse_json(text, unique_keys=True)
        except ValueError as error:
            raise ConfigurationError(f"{path}, line {number}: not JSON ({error!s:.200})") from error
        if not isinstance(row, dict):
            raise ConfigurationError(f"{path}, line {number}: must be a JSON object")
        yield row


def read_object(path: Path, limit: int) -> dict[str, Any]:
    """Return the object that a small JSON file holds."""
    try:
        content = parse_json(read_text(path, limit))
    except ValueError as error:
        raise ConfigurationError(f"{path}: is not JSON ({error!s:.200})") from error
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path}: must be a JSON object")
    return content


def csv_header(path: Path) -> tuple[str, ...]:
    """Return the names of the columns of a CSV file, as it has them."""
    header, _ = _csv_rows(path)
    for separator in ";\t|":
        if len(header) == 1 and separator in header[0]:
            raise ConfigurationError(
                f"{path}: the header {header[0][:200]!r} is separated by {separator!r}, not by ','"
            )
    return tuple(header)


def read_csv(path: Path, columns: Sequence[str]) -> Iterator[list[str]]:
    """Yield these columns of each row of a CSV file with a header; blank lines are skipped."""
    header, rows = _csv_rows(path)
    missing = [name for name in columns if header.count(name) != 1]
    if missing:
        raise _wrong_columns(path, header, missing[0])
    indices = [header.index(name) for name in columns]
    for line, row in rows:
        if len(row) != len(header):
            count = f"{len(row)} fields, but the header has {len(header)}"
            raise ConfigurationError(f"{path}, line {line}: {count}")
        yield [row[index] for index in indices]


def _wrong_columns(path: Path, columns: Sequence[str], wanted: str) -> ConfigurationError:
    return ConfigurationError(
        f"{path}: has the columns {quoted(columns)}; must have one {wanted!r}"
    )


def _csv_rows(path: Path) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    reader = csv.reader(read_lines(path), strict=True)

    def rows() -> Iterator[tuple[int, list[str]]]:
        try:
            for row in reader:
                if len(row) > 1 or (row and row[0].strip()):
                    yield reader.line_num, row
        except csv.Error as error:
            raise ConfigurationError(f"{path}, line {reader.line_num}: {error}") from error

    remaining = rows()
    _, header = next(remaining, (0, []))
    return header, remaining


MAX_ROWS = 10_000_000
MAX_GROUP_BYTES = 2**30
LONGEST_ENTRY = 10_000  # limit of a text of a published data set
MOST_PIXELS = 2**24  # limit of the numbers in one image
PARQUET = ".parquet"
_CHANNELS = {"L": 1, "RGB": 3}
_DAMAGE = (OSError, ValueError, SyntaxError, EOFError, LookupError, TypeError, struct.error)


class Column(StrEnum):
    """Types of column content."""

    WHOLE = "whole numbers"
    TEXT = "text"
    IMAGE = "images, each a struct of bytes and path"


_KINDS = {Column.WHOLE: "iu", Column.TEXT: "OU", Column.IMAGE: "u"}


def column_names(files: Sequence[Path]) -> tuple[str, ...]:
    """Return the names of the columns that all tables have, in the order of the first."""
    columns: tuple[str, ...] = ()
    for file in files:
        with _opened(file) as table:
            names = tuple(_schema(table).names)
        if columns and set(names) != set(columns):
            raise ConfigurationError(
                f"{file}: has the columns {quoted(sorted(names))}; {files[0].name} has "
                f"{quoted(sorted(columns))}"
            )
        columns = columns or names
    return columns


def read_rows(path: Path, columns: Mapping[str, Column]) -> Iterator[dict[str, NDArray[Any]]]:
    """Yield the columns of some rows at a time: whole numbers, texts as objects, images."""
    first = 0
    for batch in read_batches(path, [*columns]):
        rows = {}
        for name, kind in columns.items():
            where = f"{path}: {name}, from row {first}"
            rows[name] = values_of(where, batch.column(name), LONGEST_ENTRY)
            is_image = rows[name].ndim > 1
            if rows[name].dtype.kind not in _KINDS[kind] or is_image != (kind is Column.IMAGE):
                raise ConfigurationError(
                    f"{where}: holds {batch.column(name).type}, not {kind.value}"
                )
            if kind is Column.WHOLE:
                numbers = rows[name].astype(np.int64)
                if not (numbers == rows[name]).all():
                    raise ConfigurationError(f"{where}: holds numbers beyond 2^63")
                rows[name] = numbers
        yield rows
        first += batch.num_rows


def read_table(
    files: Sequence[Path],
    columns: Mapping[str, Column],
    check: Callable[[str, Mapping[str, NDArray[Any]]], None],
) -> dict[str, NDArray[Any]]:
    """Return whole columns of several files; `check` refuses some rows at a time."""
    found: dict[str, list[NDArray[Any]]] = {name: [] for name in columns}
    count = 0
    for path in files:
        for rows in read_rows(path, columns):
            check(f"{path}: from row {count}", rows)
            for name, values in rows.items():
                found[name].append(values)
            count += len(next(iter(rows.values())))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def require_names(where: str, names: Iterable[str]) -> None:
    """Refuse names of natural clients that are empty or too long."""
    if not all(0 < len(name) <= LONGEST_TEXT for name in set(names)):
        raise ConfigurationError(f"{where}: must have 1 .. {LONGEST_TEXT} characters")


def read_batches(path: Path, names: Sequence[str]) -> Iterator[Any]:
    """Yield validated Arrow batches with these columns of a Parquet or Arrow file."""
    with _opened(path) as table:
        held = _schema(table).names
        for name in names:
            if held.count(name) != 1:
                raise _wrong_columns(path, held, name)
        if path.suffix != PARQUET:
            for batch in table:
                batch.validate(full=True)
                yield batch.select(list(names))
            return
        stated, rows = table.metadata.num_rows, 0
        if not 1 <= stated <= MAX_ROWS:
            raise ConfigurationError(f"{path}: {stated} rows; must be 1 .. {MAX_ROWS}")
        for group in range(table.metadata.num_row_groups):
            # Not per column: with a damaged footer Arrow's `column` crashes the process.
            size = table.metadata.row_group(group).total_byte_size
            if not 0 <= size <= MAX_GROUP_BYTES:
                most = f"over {MAX_GROUP_BYTES}"
                raise ConfigurationError(f"{path}: group {group} has {size} bytes, {most}")
        for batch in table.iter_batches(4096, columns=list(names), use_threads=False):
            batch.validate(full=True)
            rows += batch.num_rows
            yield batch
        if rows != stated:
            raise ConfigurationError(f"{path}: has {rows} rows, but states {stated}")


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a table; any failure while it is open becomes one kind of error."""
    arrow = imported("pyarrow", "data", f"{path.suffix} files")
    try:
        size_of(path, MAX_FILE_BYTES)
        if path.suffix != PARQUET:
            with arrow.OSFile(str(path)) as file, arrow.ipc.open_stream(file) as stream:
                yield stream
            return
        with import_module("pyarrow.parquet").ParquetFile(
            path, thrift_string_size_limit=2**20, thrift_container_size_limit=2**20
        ) as table:
            yield table
    except (arrow.ArrowException, OSError, ValueError, LookupError) as error:
        first = str(error).partition("\n")[0]
        raise ConfigurationError(f"{path}: not a readable {path.suffix} file ({first})") from error


def _schema(table: Any) -> Any:
    return table.schema_arrow if hasattr(table, "schema_arrow") else table.schema


def values_of(where: str, column: Any, longest: int = LONGEST_TEXT) -> NDArray[Any]:
    """Return a column's entries, shape (rows, ...); images have shape (channels, height, width)."""
    types = import_module("pyarrow.types")
    type_ = column.type
    if column.null_count:
        raise ConfigurationError(f"{where}: {column.null_count} entries are missing")
    if hasattr(column, "storage"):  # such as Array2D of the Hugging Face library
        return values_of(where, column.storage, longest)
    if types.is_dictionary(type_):
        # The entries are checked before they are repeated: one long entry may stand in many rows.
        entries: NDArray[Any] = values_of(where, column.dictionary, longest)
        return np.asarray(entries[np.asarray(column.indices)])
    if types.is_boolean(type_) or types.is_integer(type_) or types.is_floating(type_):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if types.is_string(type_) or types.is_large_string(type_):
        compute = import_module("pyarrow.compute")
        most = compute.max(compute.utf8_length(column)).as_py() or 0
        if most > longest:
            raise ConfigurationError(f"{where}: a text of {most} characters, more than {longest}")
        return np.array(column.to_pylist(), dtype=np.str_ if longest == LONGEST_TEXT else object)
    if types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_):
        return _lists(where, column, longest)
    # The bytes have the type null where no row has them.
    is_bytes = (types.is_binary, types.is_large_binary, types.is_null)
    fields = {field.name: field.type for field in type_} if types.is_struct(type_) else {}
    if "bytes" in fields and any(is_kind(fields["bytes"]) for is_kind in is_bytes):
        return _images(where, column.field("bytes"))
    raise ConfigurationError(f"{where}: must hold numbers, lists, images or text; holds {type_}")


def _lists(where: str, column: Any, longest: int) -> NDArray[Any]:
    compute = import_module("pyarrow.compute")
    lengths = compute.list_value_length(column).to_numpy(zero_copy_only=False)
    if len(lengths) and lengths.min() != lengths.max():
        raise ConfigurationError(
            f"{where}: rows of {lengths.min()} .. {lengths.max()} entries: pad them to one length"
        )
    entries = values_of(where, column.flatten(), longest)
    return entries.reshape(len(column), -1, *entries.shape[1:])


def _images(where: str, column: Any) -> NDArray[np.uint8]:
    if column.null_count:
        raise ConfigurationError(f"{where}: {column.null_count} images are not in the file itself")
    if not len(column):
        return np.zeros((0, 1, 1, 1), np.uint8)
    first = _decoded(where, column[0].as_py())
    if (size := len(column) * first.nbytes) > MAX_OWN_BYTES:
        raise ConfigurationError(f"{where}: images of {size} bytes, more than {MAX_OWN_BYTES}")
    images = np.empty((len(column), *first.shape), np.uint8)
    for index, content in enumerate(column):
        image = _decoded(where, content.as_py())
        if image.shape != first.shape:
            raise ConfigurationError(f"{where}: images of different sizes or modes")
        images[index] = image
    return images


def _decoded(where: str, content: bytes) -> NDArray[np.uint8]:
    """Return an upright image, shape (channels, height, width), after its size was checked."""
    pillow = imported("PIL.Image", "data", "images")
    turns = import_module("PIL.ImageOps")
    try:
        with pillow.open(io.BytesIO(content), formats=("PNG", "JPEG")) as image:
            if image.mode not in _CHANNELS:
                raise ConfigurationError(f"{where}: an image of mode {image.mode}, not L or RGB")
            width, height = image.size
            if width * height * _CHANNELS[image.mode] > MOST_PIXELS:
                raise ConfigurationError(
                    f"{where}: an image of {width} × {height} pixels, over {MOST_PIXELS} numbers"
                )
            pixels = np.asarray(turns.exif_transpose(image), dtype=np.uint8)
    except (*_DAMAGE, pillow.DecompressionBombError) as error:
        raise ConfigurationError(f"{where}: not a readable image ({error})") from error
    return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)
