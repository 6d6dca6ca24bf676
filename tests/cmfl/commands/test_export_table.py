"""`cmfl export table`: the lists of a run as files that SQL tools and data frames load."""

from __future__ import annotations

import csv
import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyarrow import parquet

from ledger.history import export as csv_tables
from tests.cmfl.commands.conftest import SHARED, cmfl, refusal, succeeds

pytestmark = SHARED

NAMES = ["rounds", "updates", "participation", "evidence"]


@pytest.fixture(scope="module")
def files(home: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return each table of the shared home as Parquet, and as CSV beside it."""
    folder = tmp_path_factory.mktemp("tables")
    for name in NAMES:
        for form in ("parquet", "csv"):
            path = folder / f"{name}.{form}"
            export(name, path, "--home", home, "--format", form)
    return {name: folder / f"{name}.parquet" for name in NAMES}


def export(name: str, path: Path, *options: object) -> str:
    return succeeds("export", "table", name, *options, "--output", path).out


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    return rows


@pytest.mark.parametrize("name", NAMES)
def test_parquet_has_the_columns_types_and_rows_of_csv(files: dict[str, Path], name: str) -> None:
    rows = rows_of(files[name])
    with files[name].with_suffix(".csv").open(newline="") as file:
        text = list(csv.DictReader(file))
    assert len(rows) == len(text) > 0
    columns = getattr(csv_tables, name.upper()).columns
    for row, told in zip(rows, text, strict=True):
        assert list(row) == list(told) == list(columns)
        for column, value in row.items():
            assert value is None or type(value) is columns[column]
            plain = "" if value is None else str(value)
            assert told[column] == (plain.lower() if isinstance(value, bool) else plain)


def test_rounds_and_participation_are_those_of_the_lists(
    home: Path, files: dict[str, Path]
) -> None:
    listed = succeeds("rounds", "list", "--home", home, "--oldest", "--json").json
    assert rows_of(files["rounds"]) == csv_tables.ROUNDS.rows(listed)
    parts = rows_of(files["participation"])
    clients = succeeds("clients", "list", "--home", home, "--json").json["clients"]
    for client in range(len(clients)):
        page = succeeds("clients", "rounds", client, "--home", home, "--oldest", "--json").json
        own = [{**row, "client": None} for row in parts if row["client"] == client]
        expected = [{**row, "client": None} for row in csv_tables.CLIENT_ROUNDS.rows(page)]
        assert own == expected


def test_updates_are_the_trainers_of_each_round(files: dict[str, Path]) -> None:
    trained = [row for row in rows_of(files["participation"]) if row["role"] == "trainer"]
    updates = rows_of(files["updates"])
    assert updates == [{name: row[name] for name in csv_tables.UPDATES.columns} for row in trained]


@pytest.mark.parametrize("name", NAMES)
def test_a_service_gives_the_same_file(
    service: httpx.Client, files: dict[str, Path], tmp_path: Path, name: str
) -> None:
    path = tmp_path / "file"
    export(name, path, "--api", service.base_url)
    assert path.read_bytes() == files[name].with_suffix(".csv").read_bytes()


def test_the_table_of_the_guide_takes_the_file(files: dict[str, Path]) -> None:
    page = Path(__file__).parents[3] / "docs" / "how-to" / "query-with-sql.md"
    (create,) = re.findall(
        r"^CREATE TABLE .*?;$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    rows = rows_of(files["rounds"])
    with closing(sqlite3.connect(":memory:")) as base:
        base.execute(create)
        marks = ", ".join("?" * len(csv_tables.ROUNDS.columns))
        base.executemany(f"INSERT INTO rounds VALUES ({marks})", [(*row.values(),) for row in rows])
        found = base.execute("SELECT * FROM rounds ORDER BY round")
        assert [name for name, *_ in found.description] == list(csv_tables.ROUNDS.columns)
        assert found.fetchall() == [(*row.values(),) for row in rows]


def test_parquet_without_its_extra_is_refused(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = tmp_path / "file"
    path.write_text("earlier")
    asked = ("export", "table", "rounds", "--home", home, "--output", path)
    assert "[data]" in refusal(*asked, "--format", "parquet")
    assert [each.read_text() for each in tmp_path.iterdir()] == ["earlier"]
    succeeds(*asked)


def test_other_tables_formats_and_places_are_refused(
    home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    refusal("export", "table", "votes", "--home", home, "--output", tmp_path / "file")
    asked = ("export", "table", "rounds", "--home", home, "--output")
    refusal(*asked, tmp_path / "file", "--format", "jsonl")
    refusal(*asked, home / "blobs" / "file")
    refusal(*asked, tmp_path / "none" / "file")
    assert "not verified" in cmfl(*asked, "/dev/stdout").err
    assert capfd.readouterr().out.startswith("round,status,")


def test_text_is_no_formula_of_a_spreadsheet() -> None:
    table: csv_tables.CsvTable[Any] = csv_tables.CsvTable("t", {"text": str, "n": float}, list)
    hostile = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=x", 'a","b', "\ud800", "\x1b[2J"]
    pages: list[list[csv_tables.Row]] = [[{"text": text, "n": -1.5} for text in hostile]]
    (first, *rest) = csv.reader(b"".join(csv_tables.csv_lines(table, pages)).decode().splitlines())
    assert first == ["text", "n"]
    assert [text for text, _ in rest] == [
        *("'=1+1", "'+1", "'-1", "'@SUM(A1)", r"\t=x"),
        *('a","b', r"\ud800", r"\x1b[2J"),
    ]
    assert {number for _, number in rest} == {"-1.5"}
