"""The files of a log over HTTP: types, caches, and nothing beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from ledger.transparency.checkpoints import open_checkpoint
from ledger.transparency.publishing import publish
from ledger.transparency.remote import checkpoint_at, file_at
from ledger.transparency.tiles import read_entries
from tests.api.conftest import refused
from tests.patience import PATIENCE_SECONDS
from tests.transparency.serving import log_at
from tests.transparency.support import LOG, entries

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder: Path = tmp_path_factory.mktemp("log")
    publish(entries(300), LOG, folder, None)
    (folder / "secret").write_text("secret")
    with (
        log_at(folder) as url,
        httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE_SECONDS) as http,
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
        "/",
        "/secret",
        "/checkpoint.signed",
        "/log.lock",
        "/tile",
        "/tile/0/001",
        "/tile/0/000/",
        "/tile/0/000.p/12",
        "/tile/../secret",
        "/tile/%2e%2e/secret",
        "/tile/entries/..%2f..%2fsecret",
        "//checkpoint",
    ],
)
def test_nothing_else_is_served(log: httpx.Client, path: str) -> None:
    assert log.get(path).status_code == 404
    assert log.post("/checkpoint", content=b"x").status_code == 405


def test_a_page_whose_name_is_rebound_reads_no_log(log: httpx.Client) -> None:
    for path in ("/checkpoint", "/tile/0/000"):
        refused(log.get(path, headers={"Host": "rebound.example"}), 421, "host-not-served")
        assert log.get(path, headers={"Host": "localhost:8700"}).status_code == 200
