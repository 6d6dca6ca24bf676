"""Pages hold every entry once, in order, and their cursors cannot be carried elsewhere."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.settings import Settings
from ledger.claims import MAX_ANSWERED_BYTES, MAX_ROW_BYTES
from ledger.history import export as csv_tables
from ledger.history.answers_rounds import MAX_POINTS, chart_points
from ledger.history.fields import (
    MAX_CURSOR,
    AskedRole,
    CursorError,
    RoundQuery,
    decode_cursor,
    encode_cursor,
)
from ledger.history.history import MAX_SCANNED, page_width
from ledger.history.round import RoundStatus
from ledger.protocol.types import ClientId, Digest
from ledger.storage.blobs import FolderBlobs
from tests.api.conftest import CLIENTS, ROUNDS, deployments, read, refused, serving


def walk(http: httpx.Client, path: str, entries: str, **parameters: Any) -> list[Any]:
    """Return all entries, page by page."""
    found: list[Any] = []
    for _ in range(100):
        page = read(http, path, **parameters)
        assert len(page[entries]) <= parameters["limit"]
        found += page[entries]
        if page["next_cursor"] is None:
            return found
        parameters["cursor"] = page["next_cursor"]
    raise AssertionError("the walk does not end")


def numbers(found: list[Any]) -> list[int]:
    return [entry["round"] for entry in found]


@pytest.mark.parametrize("limit", [1, 2, 4, ROUNDS, 100])
def test_both_walks_hold_every_round_once(client: httpx.Client, root: str, limit: int) -> None:
    oldest = numbers(walk(client, f"{root}/rounds", "rounds", limit=limit, order="oldest"))
    newest = numbers(walk(client, f"{root}/rounds", "rounds", limit=limit, order="newest"))
    assert oldest == list(range(1, ROUNDS + 1))
    assert newest == oldest[::-1]


def test_a_page_tells_how_much_it_looked_at(client: httpx.Client, root: str) -> None:
    assert MAX_SCANNED >= ROUNDS
    assert read(client, f"{root}/rounds", status="open")["scanned"] == ROUNDS
    assert read(client, f"{root}/rounds", limit=3)["scanned"] == 3


def test_a_pages_work_is_bounded() -> None:
    assert page_width(RoundQuery("rounds"), 20, 12_288) == 20
    assert page_width(RoundQuery("rounds", status=RoundStatus.OPEN), 20, 12_288) == 200
    assert (
        page_width(RoundQuery("rounds", client=ClientId(1), role=AskedRole.ACCEPTED), 20, 12_288)
        == 200
    )
    # Who was sampled needs a key of every client: 200,000 of them for a page.
    assert page_width(RoundQuery("rounds", client=ClientId(1)), 20, 1_000) == 200
    assert page_width(RoundQuery("rounds", client=ClientId(1)), 20, 12_288) == 16
    assert page_width(RoundQuery("evidence"), 1_000, 12_288) == 160, "as ten pages of a service"


@pytest.mark.parametrize("limit", ["0", "101", "-1", "1e2", "1.0", "+5", " 5", "05", "x", "", "٣"])
def test_limits_out_of_range_are_refused(client: httpx.Client, root: str, limit: str) -> None:
    for path in ("rounds", "clients", "clients/0/rounds"):
        told = refused(
            client.get(f"{root}/{path}", params={"limit": limit}), 422, "request-invalid"
        )
        assert told["errors"][0]["name"] == "limit"


@pytest.mark.parametrize(
    "cursor", ["", "A", "AQ", "%00", "AQAAAAKHGfi3lW8gD0c", "=" * 20, "A" * MAX_CURSOR, "é"]
)
def test_what_is_no_cursor_is_refused(client: httpx.Client, root: str, cursor: str) -> None:
    for path in ("rounds", "clients", "clients/0/rounds"):
        answer = client.get(f"{root}/{path}", params={"cursor": cursor})
        refused(answer, 400, "cursor-invalid")


def test_a_cursor_is_bound_to_its_query(client: httpx.Client, root: str) -> None:
    cursor = read(client, f"{root}/rounds", limit=2)["next_cursor"]
    others: list[dict[str, Any]] = [{"order": "oldest"}, {"status": "decided"}, {"client": 1}]
    for other in others:
        answer = client.get(f"{root}/rounds", params={"cursor": cursor, **other})
        refused(answer, 400, "cursor-invalid")
    for path in ("clients", "clients/0/rounds"):
        answer = client.get(f"{root}/{path}", params={"cursor": cursor})
        refused(answer, 400, "cursor-invalid")
    assert read(client, f"{root}/rounds", cursor=cursor, limit=5)["rounds"]


@given(*[st.integers(0, 2**32 - 1)] * 2, st.text(max_size=20))
def test_a_cursor_leads_back_to_its_position(position: int, listed: int, scope: str) -> None:
    cursor = encode_cursor(position, scope, listed)
    assert len(cursor) <= MAX_CURSOR
    assert decode_cursor(cursor, scope, last=2**32 - 1) == (position, listed)
    with pytest.raises(CursorError):
        decode_cursor(cursor, scope + "x", last=2**32 - 1)


@given(place=st.integers(0, 22), letter=st.sampled_from("ABCXYZabcxyz0189-_=+/é "))
def test_every_altered_cursor_is_refused(place: int, letter: str) -> None:
    cursor = encode_cursor(7, "rounds")
    altered = cursor[:place] + letter + cursor[place + 1 :]
    if altered == cursor:
        return
    with pytest.raises(CursorError):
        decode_cursor(altered, "rounds", last=2**32 - 1)


def test_a_cursor_beyond_the_end_is_refused() -> None:
    with pytest.raises(CursorError, match="an unknown entry"):
        decode_cursor(encode_cursor(8, "rounds"), "rounds", last=7)
    with pytest.raises(CursorError, match="an unknown entry"):
        decode_cursor(encode_cursor(0, "rounds"), "rounds", last=7, first=1)


# Whatever digest somebody holds, one request says as what, where and whose it stands.


NOWHERE = "5c" * 32


def places(client: httpx.Client, root: str, digest: str) -> list[tuple[Any, ...]]:
    told = read(client, f"{root}/digests/{digest}")
    assert told["digest"] == f"0x{digest.lower().removeprefix('0x')}"
    return [(one["kind"], one["round"], one["client"]) for one in told["items"]]


def test_sha256sum_of_file_leads_to_its_round(client: httpx.Client, root: str, home: Path) -> None:
    (decided, *_) = read(client, f"{root}/rounds", status="decided", limit=1)["rounds"]
    number = decided["round"]
    told = read(client, f"{root}/rounds/{number}", full="true")
    for one in told["parts"]["updates"]:
        if one["payload"] is not None:
            data = FolderBlobs(home / "blobs").get(Digest(bytes.fromhex(one["payload"][2:])))
            own = {"payload": hashlib.sha256(data).hexdigest(), "commitment": one["commitment"]}
            for kind, digest in own.items():
                place, found = (kind, number, one["client"]), places(client, root, digest)
                # Numbers that are not finite are the same bytes in each round.
                assert place in found if one["outcome"] == "dropped_out" else found == [place]
    for kind in ("reveal", "head"):
        assert places(client, root, told[kind]) == [(kind, number, None)]
    assert ("model", number, None) in places(client, root, told["model"])
    assert places(client, root, told["record"]["digest"]) == [("record", number, None)]
    assert ("block", number, None) in places(client, root, told["ended"]["hash"])
    assert places(client, root, told["ended"]["transaction"]) == [("transaction", number, None)]


def test_what_belongs_to_the_deployment_has_no_round(client: httpx.Client, root: str) -> None:
    told = read(client, root)
    assert places(client, root, told["config"]) == [("configuration", None, None)]
    found = read(client, f"{root}/digests/{told['contract']['initial_model']}")
    first = found["items"][0]
    assert (first["kind"], first["round"]) == ("initial_model", None)
    assert client.get(first["links"]["blob"]).status_code == 200, "it is a file"
    assert first["links"]["deployment"] == root


def test_a_digest_is_written_as_people_write_it(client: httpx.Client, root: str) -> None:
    config = read(client, root)["config"]
    for written in (config, config[2:], config[2:].upper(), f"0x{config[2:].upper()}"):
        assert places(client, root, written) == [("configuration", None, None)]
    assert places(client, root, NOWHERE) == []


@pytest.mark.parametrize(
    "wrong",
    ["5c", "5c" * 33, "zz" * 32, f"0X{NOWHERE}", f"{NOWHERE[:-1]}%0a", "%00" * 64, "é" * 64],
)
def test_what_is_no_digest_is_refused(client: httpx.Client, root: str, wrong: str) -> None:
    refused(client.get(f"{root}/digests/{wrong}"), 422, "request-invalid")


# Whole lists as files: the same entries as page by page, in flat rows with fixed columns.


LISTS = [
    ("rounds", csv_tables.ROUNDS),
    ("rounds?status=decided&order=oldest", csv_tables.ROUNDS),
    ("clients", csv_tables.CLIENTS),
    ("clients/3/rounds", csv_tables.CLIENT_ROUNDS),
    ("clients/3/rounds?from=2&to=7", csv_tables.CLIENT_ROUNDS),
    ("evidence?from=2&to=8", csv_tables.EVIDENCE),
]


def all_entries(
    client: httpx.Client, path: str, table: csv_tables.CsvTable[Any]
) -> list[dict[str, Any]]:
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
    client: httpx.Client, root: str, path: str, table: csv_tables.CsvTable[Any]
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
    assert export(client, root, path).text.splitlines() == [",".join(csv_tables.ROUNDS.columns)]


def test_other_formats_and_unknown_clients_are_refused(client: httpx.Client, root: str) -> None:
    for kind in ("xml", "jsonl", "parquet"):
        refused(client.get(f"{root}/rounds?format={kind}"), 422, "request-invalid")
    refused(client.get(f"{root}/rounds?format=csv&client={CLIENTS}"), 404, "client-not-found")
    for query in ("cursor=zzz", "limit=20", "full=true"):
        refused(client.get(f"{root}/rounds?format=csv&{query}"), 422, "request-invalid")


# Curves: what rounds record beside what the run's files claim, and never one for the other.


def test_columns_are_those_of_the_rounds(client: httpx.Client, root: str) -> None:
    told = read(client, f"{root}/series")
    rounds = read(client, f"{root}/rounds", order="oldest", full="true")["rounds"]
    assert told["round"] == list(range(1, ROUNDS + 1))
    assert told["status"] == [one["status"] for one in rounds]
    assert told["views"] == [one["views"] for one in rounds]
    decided = [one["status"] == "decided" for one in rounds]
    accepted = [one["accepted"] if d else None for one, d in zip(rounds, decided, strict=True)]
    assert told["accepted"] == accepted
    assert told["committee"] == [
        [member["client"] for member in one["parts"]["committee"]] for one in rounds
    ]


def test_accuracy_is_a_claim_of_the_runs_own_files(home: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(home, tmp_path / "home"))
    metrics = copy / "runs" / "first" / "metrics.jsonl"
    rows = [json.loads(line) for line in metrics.read_text("utf-8").splitlines()]
    with serving(Settings(home=copy)) as client:
        path = f"{deployments(client)[0]['links']['self']}/series"
        told = read(client, path)
        claimed = told["claimed"]
        assert told["claims"] == "read"
        assert claimed["accuracy"] == [row["accuracy"] for row in rows]
        assert claimed["floor"] == [row["floor"] for row in rows]
        for damage in (no_row, endless_line, too_large, a_pipe, a_device):
            metrics.unlink()
            damage(metrics)
            told = read(client, path)
            assert (told["claims"], told["claimed"]) == ("unreadable", None), damage.__name__
            assert told["round"] == list(range(1, ROUNDS + 1)), "the chain's own columns stay"
        metrics.unlink()
        metrics.with_name("elsewhere").write_text(f"{json.dumps(rows[0])}\n", "utf-8")
        metrics.symlink_to("elsewhere")
        assert read(client, path)["claimed"]["accuracy"][0] == rows[0]["accuracy"]
        metrics.unlink()
        claimed = read(client, path)["claimed"]
        assert claimed["accuracy"] == [None] * ROUNDS


def no_row(metrics: Path) -> None:
    metrics.write_text("{}\n", "utf-8")


def endless_line(metrics: Path) -> None:
    metrics.write_bytes(b" " * (MAX_ROW_BYTES + 1))


def too_large(metrics: Path) -> None:
    metrics.touch()
    os.truncate(metrics, MAX_ANSWERED_BYTES + 1)


def a_pipe(metrics: Path) -> None:
    os.mkfifo(metrics)


def a_device(metrics: Path) -> None:
    metrics.symlink_to("/dev/zero")


def test_long_run_is_sampled_and_ends_with_the_last_round() -> None:
    assert chart_points(0) == []
    assert chart_points(MAX_POINTS) == list(range(1, MAX_POINTS + 1))
    assert chart_points(2 * MAX_POINTS + 1)[-3:] == [3_997, 4_000, 4_001]
    assert len(chart_points(10**6)) <= MAX_POINTS + 1
