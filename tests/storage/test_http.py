"""Blobs over HTTP: verified like those of a folder, and a failing server is no damaged blob."""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from ledger.protocol.encoding import sha256
from ledger.protocol.errors import BlobError, BlobMissingError, BlobUnreachableError
from ledger.storage.blobs import FolderBlobs
from ledger.storage.http import HttpBlobs
from ledger.storage.opening import reader_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Quiet(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass


class Answering(BaseHTTPRequestHandler):
    status = 500

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def serving(handler: Any) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def folder(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs(tmp_path / "blobs")


@pytest.fixture
def url(folder: FolderBlobs) -> Iterator[str]:
    with serving(functools.partial(Quiet, directory=str(folder.folder))) as url:
        yield url


def test_any_static_server_over_the_folder_will_do(folder: FolderBlobs, url: str) -> None:
    digests = [folder.put(data) for data in (b"", b"hello", bytes(100_000))]
    blobs = HttpBlobs(f"{url}/")
    for digest in digests:
        assert blobs.get(digest) == folder.get(digest)
        assert blobs.has(digest)
    blobs.close()


def test_a_blob_that_is_not_there_is_missing(folder: FolderBlobs, url: str) -> None:
    folder.put(b"x")
    absent = sha256(b"never published")
    with pytest.raises(BlobMissingError, match=absent.hex()):
        HttpBlobs(url).get(absent)
    assert not HttpBlobs(url).has(absent)


@pytest.mark.parametrize("other", [b"hullo", b"", b"hell", b"<html>not found</html>"])
def test_other_bytes_are_refused_and_say_nothing_of_the_blob(
    folder: FolderBlobs, url: str, other: bytes
) -> None:
    digest = folder.put(b"hello")
    (folder.folder / digest.hex()[:2] / digest.hex()).write_bytes(other)
    with pytest.raises(BlobUnreachableError, match=f"{url} gives other bytes"):
        HttpBlobs(url).get(digest)


def test_a_blob_over_the_limit_is_not_read(folder: FolderBlobs, url: str) -> None:
    digest = folder.put(bytes(5_000))
    assert len(HttpBlobs(url).get(digest, 5_000)) == 5_000
    with pytest.raises(BlobUnreachableError, match="over 4999 bytes"):
        HttpBlobs(url).get(digest, 4_999)


@pytest.mark.parametrize("status", [204, 301, 302, 401, 403, 429, 500, 503])
def test_a_server_that_fails_says_nothing_of_the_blob(status: int) -> None:
    digest = sha256(b"x")
    with serving(type("Handler", (Answering,), {"status": status})) as url:
        for ask in (HttpBlobs(url).get, HttpBlobs(url).has):
            with pytest.raises(BlobUnreachableError, match=f"answers with HTTP status {status}"):
                ask(digest)


def test_a_server_that_is_away_or_drips_says_nothing_of_the_blob() -> None:
    digest = sha256(b"x")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://me:secret@127.0.0.1:{silent.getsockname()[1]}/key"
        began = time.monotonic()
        with pytest.raises(BlobUnreachableError, match=r"no whole answer in 0\.2 s") as caught:
            HttpBlobs(url, 0.2).get(digest)
        assert time.monotonic() - began < 1
    assert "secret" not in str(caught.value)
    assert "key" not in str(caught.value)
    with pytest.raises(BlobUnreachableError, match="unreachable"):
        HttpBlobs(url, 0.2).has(digest)


def test_a_place_is_a_folder_or_a_url(folder: FolderBlobs, url: str, tmp_path: Path) -> None:
    digest = folder.put(b"hello")
    for place in (url, str(folder.folder)):
        assert reader_at(place).get(digest) == b"hello"
    for place in (str(tmp_path / "none"), "nosuch://host/blobs", "http://", "https://[::1"):
        with pytest.raises(BlobError, match="blobs"):
            reader_at(place)


@pytest.mark.parametrize(
    "text", ["HTTPS:/u:SECRET@host/blobs", "http:/host?key=SECRET", "u:SECRET@h"]
)
def test_a_place_that_may_hold_a_secret_is_not_repeated(text: str) -> None:
    with pytest.raises(BlobError, match="no folder here") as caught:
        reader_at(text)
    assert "SECRET" not in str(caught.value)


def test_a_server_that_never_answers_is_not_asked_for_ever() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        blobs = HttpBlobs(url, timeout_seconds=0.05, most_failures=2)
        for _ in range(2):
            with pytest.raises(BlobUnreachableError, match="no whole answer in"):
                blobs.get(sha256(b"any"))
        with pytest.raises(BlobUnreachableError, match="gave no whole answer 2 times in a row"):
            blobs.get(sha256(b"any"))
        blobs.close()


def test_a_token_that_no_header_can_hold_is_refused_and_not_shown() -> None:
    for token, url in (("a b", "http://x"), ("a\r\nb", "http://x"), ("ab", "http://u:p@x")):
        with pytest.raises(BlobError) as refused:
            HttpBlobs(url, token=token)
        assert token not in str(refused.value)
