"""Whole lists as CSV: all pages, one after the other, as one file.

The list is as of the block in `X-As-Of-Block`. A long file is never in memory as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from fastapi import Query
from fastapi.responses import StreamingResponse
from starlette.responses import Response

from api.http.answers import RequestView
from ledger.chain.ports import NotServedError
from ledger.history.export import CsvTable, Row, csv_lines
from ledger.history.fields import ListPage

P = TypeVar("P", bound=ListPage)

PAGE = 100
"""Entries that are read at once."""


class Format(StrEnum):
    """Format of a list."""

    JSON = "json"
    CSV = "csv"


FormatQuery = Annotated[
    Format,
    Query(
        description="`json` for a page; `csv` for the whole list in flat rows, without `cursor` "
        "and `limit`",
        examples=["csv"],
    ),
]

EXPORTED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "a page, or the whole list",
        "content": {"text/csv": {"schema": {"type": "string", "format": "binary"}}},
    }
}
"""OpenAPI declaration of a list in any format."""


def exported(reading: RequestView, table: CsvTable[P], page: Callable[[str | None], P]) -> Response:
    """Return a whole list as CSV; `page` reads the page at a cursor."""
    first = page(None)  # rejections precede the first byte
    rows = _rows(reading, table, first, page)
    headers = {
        "Cache-Control": "no-store",
        "Content-Disposition": f'attachment; filename="{table.name}.csv"',
        "X-As-Of-Block": f"{reading.as_of['number']} {reading.as_of['hash']}",
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingResponse(
        csv_lines(table, rows), headers=headers, media_type="text/csv; charset=utf-8"
    )


def _rows(
    reading: RequestView, table: CsvTable[P], first: P, page: Callable[[str | None], P]
) -> Iterator[list[Row]]:
    """Yield the rows of each page."""
    current = first
    while True:
        yield table.rows(current)
        if current["next_cursor"] is None:
            break
        current = page(current["next_cursor"])
    if not reading.chain.is_unmoved():
        raise NotServedError("the chain was reorganised while it was read")
