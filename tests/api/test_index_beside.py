"""With an index beside the chain, lists are the same to the byte; without a good one, too."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from api.settings import Settings
from clients.runs.run_folder import manifest_of
from ledger.chain.contract.deployment import connect
from ledger.chain.embedded.embedded_reader import EmbeddedReader
from ledger.history.pinned_chain import HistoryService
from ledger.history.queries import RoundQuery
from ledger.history.serialise.serialise_clients import clients_page
from ledger.history.serialise.serialise_rounds import rounds_page
from ledger.history.status import AskedRole
from ledger.index.codes import IndexState
from ledger.index.database import Database
from ledger.index.schema import DEPLOYMENT, METADATA, PARTICIPATION, ROUND_EVENTS
from ledger.index.service_index import ServiceIndex
from ledger.storage.blobs import FolderBlobs
from tests.api.conftest import CLIENTS, ROUNDS, read, serving
from tests.faults import times
from tests.index.conftest import generated, indexed, made
from tests.patience import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx
    from sqlalchemy import Column, Table

    from ledger.history.source import HistorySource

Spoil = Callable[[Path], None]


@pytest.fixture(scope="module")
def index_file(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index of the whole run, to copy."""
    path = tmp_path_factory.mktemp("beside") / "index.sqlite"
    database = made(path)
    with EmbeddedReader.open(home / "chain.sqlite") as chain:
        indexed(database, connect(chain, manifest_of(home, "first")), FolderBlobs(home / "blobs"))
    database.close()
    return path


@pytest.fixture(scope="module")
def beside(home: Path, index_file: Path) -> Iterator[httpx.Client]:
    with serving(Settings(home=home, index=str(index_file))) as client:
        yield client


LISTS = [
    *(
        f"rounds?order={order}&limit={limit}"
        for order in ("newest", "oldest")
        for limit in (4, 100)
    ),
    *(f"rounds?status={status}" for status in ("decided", "abandoned", "open")),
    *(
        f"rounds?client={client}&role={role}&limit=2"
        for client, role in enumerate(role for role in AskedRole if role is not AskedRole.REFUSED)
    ),
    *(f"rounds?client={client}&role=refused" for client in range(0, CLIENTS, 3)),
    "rounds?view_min=1",
    "rounds?since_block=20&until_block=40&order=oldest",
    "rounds?since=1&until=4000000000",
    "rounds?full=true&limit=3",
    "rounds?format=csv",
    "clients?limit=5",
    "clients?format=csv",
    "clients/3",
    *(f"clients/{client}/rounds?limit=4" for client in range(0, CLIENTS, 2)),
    "clients/1/rounds?format=csv",
    "evidence?limit=100",
    "evidence?client=2&limit=100",
    "series",
]


def test_every_list_is_the_same_to_the_byte(
    client: httpx.Client, beside: httpx.Client, root: str
) -> None:
    assert read(beside, "/v1/status")["index"] == {"state": "read", "kept": False}
    model = read(client, root)["contract"]["initial_model"]
    followed = 0
    for asked in [*LISTS, f"digests/{model}", f"digests/{model}?limit=1"]:
        path: str | None = f"{root}/{asked}"
        while path is not None:
            true, found = client.get(path), beside.get(path)
            assert true.status_code == found.status_code == 200, path
            assert found.content == true.content, path
            assert found.headers.get("etag") == true.headers.get("etag")
            cursor = "format=" not in path and true.json().get("next_cursor")
            path = f"{root}/{asked}&cursor={cursor}" if cursor else None
            followed += path is not None
    assert followed > 10, "cursors of the one are those of the other"
    for refused in ("rounds?cursor=AQ", "clients/14", "clients/99/rounds", "rounds?client=14"):
        true, found = client.get(f"{root}/{refused}"), beside.get(f"{root}/{refused}")
        assert (found.status_code, found.content) == (true.status_code, true.content)
        assert true.status_code in {400, 404}


def test_status_says_how_far_the_index_is(
    client: httpx.Client, beside: httpx.Client, root: str
) -> None:
    told = read(beside, "/v1/status")
    (one,) = told["deployments"]
    assert one["index"] == {
        "block": told["as_of"]["number"],
        "behind": 0,
        "rounds": ROUNDS,
        "ended": ROUNDS,
        "compared": {"code": 1, "name": "equal"},
        "waiting": 0,
        "used": True,
    }
    bare = read(client, "/v1/status")
    assert bare["index"] == {"state": "none", "kept": False}
    assert bare["deployments"][0]["index"] is None


def told_by(history: HistorySource) -> list[object]:
    walks = [RoundQuery("rounds"), RoundQuery("rounds", view_min=1)]
    pages = [rounds_page(history, history.page(walk, 4, None)) for walk in walks]
    return [*pages, clients_page(history, 5, None)]


def damaged(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (path.stat().st_size - 4096))


def altered(path: Path) -> None:
    """The file is whole, but its rows contradict each other."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE round SET view = CASE view WHEN 0 THEN 3 ELSE 0 END")


def of_an_older_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE index_schema SET number = 0")


def of_another_chain(path: Path) -> None:
    path.unlink()
    database = made(path)
    indexed(database, generated(2).ledger)
    database.close()


def behind(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE deployment SET block = block - 1")


def of_another_fork(path: Path) -> None:
    """The block has the head's number, and another hash."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE checkpoint SET hash = zeroblob(32)")


def contradicted(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE deployment SET compared = 2, newest = 3")


def text(path: Path) -> None:
    path.write_text("no database at all\n" * 999)


def missing(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("spoil", [damaged, altered, of_an_older_program, text, missing])
def test_a_failing_index_is_skipped_and_the_chain_answers(
    home: Path, index_file: Path, tmp_path: Path, spoil: Spoil, caplog: pytest.LogCaptureFixture
) -> None:
    path = Path(shutil.copy(index_file, tmp_path / "index.sqlite"))
    beside = ServiceIndex(path)
    histories = HistoryService(Settings(home=home), beside)
    now = histories.now()
    (served,), _ = now.deployments()
    assert now.query(served, told_by) == told_by(now.history(served))
    assert caplog.messages == []
    beside.close()
    spoil(path)
    for _ in range(2):
        assert now.query(served, told_by) == told_by(now.history(served))
    assert beside.standing() is IndexState.LEFT_ALONE
    assert beside.coverage() == []
    (said,) = caplog.messages
    assert said.startswith("lists come from the chain, for the index cannot be read: ")
    histories.close()


PACKED = {
    *(ROUND_EVENTS.c.start, ROUND_EVENTS.c.activity, ROUND_EVENTS.c.ended),
    *(PARTICIPATION.c.document, DEPLOYMENT.c.fixed, DEPLOYMENT.c.view),
}
ASKED = [
    *("rounds?client=3&role=trained&limit=2", "rounds?since=1&until_block=4000&limit=2"),
    *("rounds?full=true&limit=1", "rounds?client=5&role=refused&limit=2", "clients?limit=2"),
    *("clients/3/rounds?limit=100", "evidence?client=2", "series"),
]


def other_values(column: Column[Any], value: object) -> list[object]:
    """Return what damage makes of a value: other bytes, another size, another kind."""
    if not isinstance(value, bytes):
        return ["x", -1, 2**62]
    places = (0, len(value) // 2, len(value) - 1) if column in PACKED else (0,)
    flipped = [value[:at] + bytes([value[at] ^ 0x41]) + value[at + 1 :] for at in places]
    return [*flipped, value[:-1], "x"]


def alter(path: Path, column: Column[Any], value: object) -> None:
    """Write one value into all rows of a column, however they are constrained."""
    table, name = column.table.name, column.name
    # A row's own number is a number, whoever writes it.
    with closing(sqlite3.connect(path)) as connection, connection, suppress(sqlite3.IntegrityError):
        connection.execute("PRAGMA synchronous = OFF")  # no disk need be waited for
        connection.execute(f'UPDATE OR REPLACE {table} SET "{name}" = ?', (value,))


def values_of(path: Path, column: Column[Any]) -> list[object]:
    """Return the longest value of a column, where there is any."""
    table, name = column.table.name, column.name
    asked = (
        f'SELECT "{name}" FROM {table} WHERE "{name}" IS NOT NULL '
        f'ORDER BY length("{name}") DESC LIMIT 1'
    )
    with closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute(asked)]


@pytest.mark.parametrize("table", METADATA.sorted_tables, ids=lambda table: table.name)
def test_no_damaged_value_is_a_fault_of_the_service(
    client: httpx.Client,
    root: str,
    home: Path,
    index_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    table: Table,
) -> None:
    monkeypatch.setattr("ledger.index.service_index.LEFT_ALONE_SECONDS", 0.0)
    model = read(client, root)["contract"]["initial_model"]
    paths = [f"{root}/{asked}" for asked in [*ASKED, f"digests/{model}"]]
    true = {path: client.get(path).content for path in paths}
    path = tmp_path / "index.sqlite"
    shutil.copy(index_file, path)
    damages = [
        (column, value)
        for column in table.columns
        for before in values_of(index_file, column)
        for value in other_values(column, before)
    ]
    parts = times(8, 1)  # of the paths: each damage is asked about by one, the next by another
    with serving(Settings(home=home, index=str(path))) as other:
        assert read(other, "/v1/status")["deployments"][0]["index"]["used"]
        for number, (column, value) in enumerate(damages):
            new = Path(shutil.copy(index_file, tmp_path / "new.sqlite"))
            alter(new, column, value)
            new.replace(path)
            for asked in [*paths, "/v1/status"][number % parts :: parts]:
                answer = other.get(asked)
                assert answer.status_code == 200, (column, value, asked, answer.text)
                if column in PACKED and asked in true:
                    assert answer.content == true[asked], (column, value, asked)


@pytest.mark.parametrize("spoil", [of_another_chain, behind, of_another_fork, contradicted])
def test_an_index_that_stands_elsewhere_is_not_asked(
    home: Path, index_file: Path, tmp_path: Path, spoil: Spoil, caplog: pytest.LogCaptureFixture
) -> None:
    path = Path(shutil.copy(index_file, tmp_path / "index.sqlite"))
    spoil(path)
    beside = ServiceIndex(path)
    histories = HistoryService(Settings(home=home), beside)
    now = histories.now()
    (served,), _ = now.deployments()
    with beside.history(served.ledger, now.blobs, now.block) as history:
        assert history is None
    assert now.query(served, told_by) == told_by(now.history(served))
    assert (beside.standing(), caplog.messages) == (IndexState.READ, [])
    beside.close()
    histories.close()


def test_a_locked_index_is_not_waited_for(
    home: Path, index_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.index.service_index.WAITED_SECONDS", 0.05)
    path = Path(shutil.copy(index_file, tmp_path / "index.sqlite"))
    beside = ServiceIndex(path)
    histories = HistoryService(Settings(home=home), beside)
    now = histories.now()
    (served,), _ = now.deployments()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        assert now.query(served, told_by) == told_by(now.history(served))
        assert beside.standing() is IndexState.LEFT_ALONE
    beside.close()
    histories.close()


def test_the_service_keeps_its_index_if_told_to(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever asks while the file is being created finds none that can be read.
    monkeypatch.setattr("ledger.index.service_index.LEFT_ALONE_SECONDS", 0.02)
    path = tmp_path / "index.sqlite"
    with serving(Settings(home=home, index=str(path), keeps_index=True)) as client:

        def is_used() -> bool:
            index = read(client, "/v1/status")["deployments"][0]["index"]
            return bool(index and index["used"])

        wait_until(is_used)
        assert read(client, "/v1/status")["index"]["kept"]
    database = Database(path)
    with database.transaction() as connection:
        assert connection.exec_driver_sql("SELECT max(round) FROM round").scalar() == ROUNDS
    database.close()
