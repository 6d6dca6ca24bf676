"""Whole lists as files: the same entries as page by page, in flat rows with fixed columns."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import pytest

from ledger.history.serialise.csv_tables import CLIENT_ROUNDS, CLIENTS, ROUNDS, CsvTable
from tests.api.conftest import CLIENTS as CLIENT_COUNT
from tests.api.conftest import read, refused

if TYPE_CHECKING:
    import httpx

LISTS = [
    ("rounds", ROUNDS),
    ("rounds?status=decided&order=oldest", ROUNDS),
    ("clients", CLIENTS),
    ("clients/3/rounds", CLIENT_ROUNDS),
]


def all_entries(client: httpx.Client, path: str, table: CsvTable[Any]) -> list[dict[str, Any]]:
    """Return the rows of every page, two entries at a time."""
    rows: list[dict[str, Any]] = []
    cursor: dict[str, Any] = {}
    asked = dict(part.split("=") for part in path.partition("?")[2].split("&") if part)
    while True:
        page = read(client, path.partition("?")[0], limit=2, **asked, **cursor)
        rows += table.rows(page)
        if page["next_cursor"] is None:
            return rows
        cursor = {"cursor": page["next_cursor"]}


def export(client: httpx.Client, root: str, path: str) -> httpx.Response:
    answer = client.get(f"{root}/{path}{'&' if '?' in path else '?'}format=csv")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-disposition"].startswith("attachment; filename=")
    number, hashed = answer.headers["x-as-of-block"].split()
    as_of = read(client, "/v1/status")["as_of"]
    assert (int(number), hashed) == (as_of["number"], as_of["hash"])
    return answer


@pytest.mark.parametrize(("path", "table"), LISTS)
def test_a_csv_file_has_all_entries_of_all_pages(
    client: httpx.Client, root: str, path: str, table: CsvTable[Any]
) -> None:
    rows = all_entries(client, f"{root}/{path}", table)
    assert rows
    assert all(list(row) == list(table.columns) for row in rows)
    text = list(csv.DictReader(io.StringIO(export(client, root, path).text)))
    assert len(text) == len(rows)
    for told, row in zip(text, rows, strict=True):
        for name, value in row.items():
            plain = "" if value is None else str(value)
            assert told[name] == (plain.lower() if isinstance(value, bool) else plain)


def test_an_empty_list_has_its_columns(client: httpx.Client, root: str) -> None:
    path = "rounds?since_block=4294967295"
    assert export(client, root, path).text.splitlines() == [",".join(ROUNDS.columns)]


def test_other_formats_and_unknown_clients_are_refused(client: httpx.Client, root: str) -> None:
    for kind in ("xml", "jsonl", "parquet"):
        refused(client.get(f"{root}/rounds?format={kind}"), 422, "request-invalid")
    refused(client.get(f"{root}/rounds?format=csv&client={CLIENT_COUNT}"), 404, "client-not-found")
