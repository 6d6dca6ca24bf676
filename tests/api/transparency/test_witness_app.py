"""A witness over HTTP: the statuses and types of the specification, and bodies without end."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from api.transparency import create_witness
from ledger.transparency.network import WitnessFolder, checkpoint_at, file_at, publish
from ledger.transparency.notes import open_checkpoint
from ledger.transparency.tree import consistency_proof, read_entries
from ledger.transparency.witness import MAX_REQUEST_BYTES, AddCheckpoint, origin_hash
from tests.api.conftest import refused
from tests.patience import PATIENCE_SECONDS
from tests.transparency.serving import log_at, served, witness_at
from tests.transparency.support import LOG, NOW, ORIGIN, WITNESSES, checkpoint, entries, leaves

WITNESS = WITNESSES[0]
NEWEST = f"/{origin_hash(ORIGIN)}/checkpoint"


def body(old: int, new: int, *, fork: int | None = None) -> bytes:
    proof = consistency_proof(min(old, new), leaves(new, fork=fork))
    return AddCheckpoint(old, proof, checkpoint(new, fork=fork).note.encoded()).encoded()


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[httpx.Client]:
    with (
        witness_at(tmp_path, WITNESS) as url,
        httpx.Client(base_url=url, trust_env=False, verify=False, timeout=PATIENCE_SECONDS) as http,
    ):
        yield http


def posted(witness: httpx.Client, content: bytes) -> httpx.Response:
    return witness.post("/add-checkpoint", content=content)


def test_a_checkpoint_is_cosigned_and_served(witness: httpx.Client) -> None:
    assert witness.get(NEWEST).status_code == 404
    answer = posted(witness, body(0, 3))
    assert (answer.status_code, answer.headers["content-type"]) == (
        200,
        "text/plain; charset=utf-8",
    )
    assert answer.text.startswith("— w0.example ")
    assert answer.text.endswith("\n")
    served_note = witness.get(NEWEST)
    assert served_note.content == checkpoint(3).note.encoded() + answer.content
    assert served_note.headers["cache-control"] == "no-store"
    assert witness.head(NEWEST).status_code == 200


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"nonsense", 400),
        (b"old 0\n\nnonsense", 400),
        (body(5, 3), 400),
        (body(0, 3).replace(ORIGIN.encode(), b"example.org/unknown"), 404),
        (body(0, 3).replace(b"\n3\n", b"\n4\n"), 403),
        (body(3, 3, fork=2), 422),
        (body(3, 5, fork=2), 422),
        (b"x" * (MAX_REQUEST_BYTES + 1), 413),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "",
)
def test_what_is_not_cosigned_has_the_specifications_status(
    witness: httpx.Client, content: bytes, status: int
) -> None:
    posted(witness, body(0, 3))
    answer = posted(witness, content)
    assert answer.status_code == status
    assert answer.text.count("\n") == 1
    # It goes on from where it was.
    assert posted(witness, body(3, 5)).status_code == 200


def test_two_trees_of_one_size_leave_evidence(witness: httpx.Client, tmp_path: Path) -> None:
    posted(witness, body(0, 3))
    posted(witness, body(0, 3, fork=2))
    [evidence] = tmp_path.glob("*/evidence/*")
    assert evidence.read_bytes() == checkpoint(3, fork=2).note.encoded()


def test_other_paths_and_methods_are_not_there(witness: httpx.Client) -> None:
    assert witness.get("/add-checkpoint").status_code == 405
    assert witness.get("/").status_code == 404
    assert witness.get("/witness.lock").status_code == 404
    assert witness.get("/../x/checkpoint").status_code == 404
    assert witness.put(NEWEST, content=b"x").status_code == 405
    assert witness.get("/health").text == "ok\n"


def test_a_body_that_drips_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = WitnessFolder(tmp_path, [LOG.verifier], WITNESS, lambda: NOW)
    monkeypatch.setattr("api.transparency.BODY_SECONDS", 0.2)
    with served(create_witness(state)) as url:
        parts = urlsplit(url)
        assert parts.hostname is not None
        with socket.create_connection(
            (parts.hostname, parts.port or 0), timeout=PATIENCE_SECONDS
        ) as peer:
            peer.sendall(
                b"POST /add-checkpoint HTTP/1.1\r\nHost:\r\nContent-Length: 500\r\n\r\nold"
            )
            assert b" 408 " in peer.recv(200)


def test_of_two_requests_at_once_one_continues_the_other(witness: httpx.Client) -> None:
    """Both name the size that the witness had: the second one conflicts, and takes nothing back."""
    posted(witness, body(0, 3))
    answers: list[int] = []
    contents = [body(3, size) for size in range(4, 12)]
    threads = [
        threading.Thread(target=lambda c=content: answers.append(posted(witness, c).status_code))
        for content in contents
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200, *[409] * 7]


def test_a_page_whose_name_is_rebound_reaches_no_witness(witness: httpx.Client) -> None:
    rebound = {"Host": "rebound.example"}
    refused(witness.get("/health", headers=rebound), 421, "host-not-served")
    answer = witness.post("/add-checkpoint", content=body(0, 3), headers=rebound)
    refused(answer, 421, "host-not-served")
    assert witness.get(NEWEST).status_code == 404


# The files of a log over HTTP: types, caches, and nothing beside them.


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder: Path = tmp_path_factory.mktemp("log")
    publish(entries(300), LOG, folder, None)
    (folder / "secret").write_text("secret")
    with (
        log_at(folder) as url,
        httpx.Client(base_url=url, trust_env=False, verify=False, timeout=PATIENCE_SECONDS) as http,
    ):
        yield http


def test_a_whole_log_is_read_over_http(log: httpx.Client) -> None:
    url = str(log.base_url).rstrip("/")
    checkpoint = open_checkpoint(checkpoint_at(url), [LOG.verifier]).checkpoint
    assert read_entries(checkpoint, lambda path: file_at(url, path)) == entries(300)


def test_tiles_may_be_cached_for_ever_and_the_checkpoint_not(log: httpx.Client) -> None:
    checkpoint, tile = log.get("/checkpoint"), log.get("/tile/0/000")
    assert checkpoint.headers["content-type"] == "text/plain; charset=utf-8"
    assert checkpoint.headers["cache-control"] == "no-cache"
    assert (tile.headers["content-type"], len(tile.content)) == ("application/octet-stream", 8192)
    assert "immutable" in tile.headers["cache-control"]


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/secret", "/checkpoint.signed", "/log.lock", "/tile", "/tile/0/001"),
        *("/tile/0/000/", "/tile/0/000.p/12", "/tile/../secret", "/tile/%2e%2e/secret"),
        *("/tile/entries/..%2f..%2fsecret", "//checkpoint"),
    ],
)
def test_nothing_else_is_served(log: httpx.Client, path: str) -> None:
    assert log.get(path).status_code == 404
    assert log.post("/checkpoint", content=b"x").status_code == 405
