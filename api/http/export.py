"""Whole lists as CSV, JSON lines or Parquet: all pages, one after the other, as one file.

The list is as of the block in `X-As-Of-Block`. A long file is never in memory as a whole.
"""

from __future__ import annotations

import csv
import io
import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Query
from fastapi.responses import StreamingResponse

from api.http.problems import FORMAT_NOT_SERVED, ProblemError
from ledger.chain.ports import NotServedError
from ledger.history.responses.fields import ListPage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.responses import Response

    from api.http.request_view import RequestView
    from ledger.history.serialise.csv_tables import Cell, CsvTable, Row

P = TypeVar("P", bound=ListPage)

PAGE = 100
"""Entries that are read at once."""


class Format(StrEnum):
    """Format of a list."""

    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


FormatQuery = Annotated[
    Format,
    Query(
        description="`json` for a page; `csv`, `jsonl`, `parquet` for the whole list in flat rows, "
        "without `cursor` and `limit`",
        examples=["csv"],
    ),
]
MEDIA_TYPES = {
    Format.JSONL: "application/jsonl",
    Format.CSV: "text/csv; charset=utf-8",
    Format.PARQUET: "application/vnd.apache.parquet",
}

EXPORTED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "a page, or the whole list",
        "content": {
            kind.partition(";")[0]: {"schema": {"type": "string", "format": "binary"}}
            for kind in MEDIA_TYPES.values()
        },
    }
}
"""OpenAPI declaration of a list in any format."""


def exported(
    reading: RequestView, table: CsvTable[P], kind: Format, page: Callable[[str | None], P]
) -> Response:
    """Return a whole list as a file.

    Args:
        reading: the chain.
        table: columns and rows.
        kind: any but JSON.
        page: reads the page at a cursor.

    Raises:
        ProblemError: Parquet, and the service has no library that writes it.
    """
    first = page(None)  # rejections precede the first byte
    writers = {Format.JSONL: _json_lines, Format.CSV: _csv, Format.PARQUET: _parquet}
    rows = _rows(reading, table, first, page)
    headers = {
        "Cache-Control": "no-store",
        "Content-Disposition": f'attachment; filename="{table.name}.{kind}"',
        "X-As-Of-Block": f"{reading.as_of['number']} {reading.as_of['hash']}",
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingResponse(
        writers[kind](table, rows), headers=headers, media_type=MEDIA_TYPES[kind]
    )


def _rows(
    reading: RequestView, table: CsvTable[P], first: P, page: Callable[[str | None], P]
) -> Iterator[list[Row]]:
    """Yield the rows of each page.

    Raises:
        NotServedError: the chain was reorganised meanwhile: the file ends in the middle.
    """
    current = first
    while True:
        yield table.rows(current)
        if current["next_cursor"] is None:
            break
        current = page(current["next_cursor"])
    if not reading.chain.is_unmoved():
        raise NotServedError("the chain was reorganised while it was read")


def _json_lines(_: CsvTable[P], pages: Iterator[list[Row]]) -> Iterator[bytes]:
    for rows in pages:
        yield "".join(f"{json.dumps(row, allow_nan=False)}\n" for row in rows).encode()


def _csv(table: CsvTable[P], pages: Iterator[list[Row]]) -> Iterator[bytes]:
    text = io.StringIO()
    writer = csv.DictWriter(text, table.columns, lineterminator="\n")
    writer.writeheader()
    for rows in pages:
        writer.writerows({name: _csv_cell(value) for name, value in row.items()} for row in rows)
        yield text.getvalue().encode()
        text.seek(0)
        text.truncate()
    yield text.getvalue().encode()


def _csv_cell(value: Cell) -> Cell:
    """Return a value as JSON has it: truth values in lower case."""
    return ("true" if value else "false") if isinstance(value, bool) else value


class _Sink(io.RawIOBase):
    """A buffer that a writer fills and a reader empties piece by piece."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []
        self._written = 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return how many bytes were written in total."""
        return self._written

    def write(self, data: Any) -> int:
        """Take bytes."""
        piece = bytes(data)
        self._pieces.append(piece)
        self._written += len(piece)
        return len(piece)

    def take(self) -> bytes:
        """Return and forget the bytes written since the last call."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        return data


def _parquet(table: CsvTable[P], pages: Iterator[list[Row]]) -> Iterator[bytes]:
    """Return a Parquet file, a row group for each page (ProblemError: there is no pyarrow)."""
    try:
        import pyarrow as arrow  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        detail = "this service writes no Parquet: it was installed without the extra `data`"
        raise ProblemError(FORMAT_NOT_SERVED, detail) from error
    kinds = {int: arrow.int64(), float: arrow.float64(), str: arrow.string(), bool: arrow.bool_()}
    schema = arrow.schema([(name, kinds[kind]) for name, kind in table.columns.items()])

    def groups() -> Iterator[bytes]:
        sink = _Sink()
        with parquet.ParquetWriter(sink, schema) as writer:
            for rows in pages:
                writer.write_table(arrow.Table.from_pylist(rows, schema=schema))
                yield sink.take()
        yield sink.take()

    return groups()
