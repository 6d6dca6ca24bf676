"""Blobs of a store: written once by clients, read whole or in part by anybody."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from api.http.server import listening_socket, url_of
from api.http.streams import parse_range
from api.settings import StoreSettings
from api.store.app import server_for
from api.store.receiver import IncomingFile
from ledger.io.home import Home
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import BlobError, BlobMissingError
from ledger.storage.blobs import FolderBlobs, ObjectBlobs
from ledger.storage.http import CHECKED_FIRST_BYTES, static_server
from ledger.storage.opening import store_at
from tests.api.conftest import refused
from tests.api.store.conftest import Contract, Store, path_of, stored, uploads_of
from tests.patience import PATIENCE_SECONDS

DATA = bytes(range(256)) * 8


def test_what_a_client_puts_anybody_reads(store: Store) -> None:
    blobs = store_at(store.url, uploads_of(store.domain))
    for data in (b"", b"hello", bytes(200_000)):
        digest = blobs.put(data)
        assert digest == sha256(data)
        assert ObjectBlobs(static_server(store.url)).get(digest) == data
        assert FolderBlobs(store.folder).get(digest) == data
        assert blobs.has(digest)
    blobs.sync()
    with pytest.raises(BlobMissingError):
        blobs.get(sha256(b"never published"))
    assert not blobs.has(sha256(b"never published"))
    with pytest.raises(BlobError, match="not ours to remove"):
        blobs.remove(sha256(b"hello"))


def test_only_address_and_the_public_name_reach_store(tmp_path: Path, contract: Contract) -> None:
    urls = ("https://store.example/below",)
    with stored(tmp_path / "store", contract, public_urls=urls) as store:
        path = path_of(DATA)
        for host in ("rebound.example", "other.store.example"):
            for method in ("GET", "HEAD", "PUT", "OPTIONS"):
                answer = store.http.request(method, path, headers={"Host": host})
                assert answer.status_code == 421, (method, host)
            refused(store.http.get("/metrics", headers={"Host": host}), 421, "host-not-served")
        for host in ("store.example", "10.0.0.1:8600", "localhost"):
            refused(store.http.get(path, headers={"Host": host}), 404, "blob-not-found")


def test_same_blob_again_is_no_news_and_costs_nothing(tmp_path: Path, contract: Contract) -> None:
    with stored(tmp_path / "store", contract, quota_blobs=1) as store:
        assert [store.put(DATA).status_code for _ in range(3)] == [201, 200, 200]
        assert store.put(DATA, client=1).status_code == 200
        assert store.put(b"other", client=1).status_code == 201
        refused(store.put(b"one more", client=1), 429, "quota-exceeded")


def test_a_damaged_blob_may_be_uploaded_again(store: Store) -> None:
    blobs, data = store_at(store.url, uploads_of(store.domain)), bytes(CHECKED_FIRST_BYTES + 1)
    path = store.folder / path_of(data)[1:]
    digest = blobs.put(data)
    assert blobs.has(digest)
    path.write_bytes(data[:-1] + b"x")
    assert not blobs.has(digest)
    blobs.put(data)
    assert path.read_bytes() == data


def test_an_answer_is_cacheable_and_no_html_page(store: Store) -> None:
    store.put(DATA)
    answer = store.http.get(path_of(DATA))
    name = sha256(DATA).hex()
    assert answer.content == DATA
    assert answer.headers["etag"] == f'"{name}"'
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    known = {"If-None-Match": f'"{name}"'}
    assert store.http.get(path_of(DATA), headers=known).status_code == 304
    head = store.http.head(path_of(DATA))
    assert (head.status_code, head.headers["content-length"]) == (200, str(len(DATA)))


def test_a_part_is_given_and_one_behind_the_end_is_refused(store: Store) -> None:
    store.put(DATA)
    answer = store.http.get(path_of(DATA), headers={"Range": "bytes=5-9"})
    assert (answer.status_code, answer.content) == (206, DATA[5:10])
    behind = store.http.get(path_of(DATA), headers={"Range": "bytes=2048-"})
    refused(behind, 416, "range-unsatisfiable")


def test_what_is_no_single_range_is_answered_by_the_whole() -> None:
    for header in (None, "", "bytes=", "bytes=-", "bytes=5-4", "bytes=0-1,3-4", "lines=1-2", "x"):
        assert parse_range(header, 10) is None
    assert parse_range("bytes=0-99", 10) == range(10)
    assert parse_range("bytes=-99", 10) == range(10)
    for header in ("bytes=10-", "bytes=-0", "bytes=99999999999999999-"):
        with pytest.raises(ValueError, match="does not include this range"):
            parse_range(header, 10)
    with pytest.raises(ValueError, match="does not include this range"):
        parse_range("bytes=0-", 0)


# What comes piece by piece has its name once it is whole and right, and leaves nothing else.


COMING = b"what comes"


def incoming(folder: Path, pieces: tuple[bytes, ...], size: int = len(COMING)) -> IncomingFile:
    file = IncomingFile(folder, sha256(COMING), size)
    for piece in pieces:
        file.write(piece)
    return file


def test_what_somebody_removes_meanwhile_gets_no_name(tmp_path: Path) -> None:
    # Whoever comes to a home alone removes what is unfinished in it, and what comes then is a part.
    home, target = Home(tmp_path), tmp_path / "ab" / "abcd"
    home.blobs.mkdir()
    file = incoming(home.blobs, (COMING[:3],))
    with home.writing():
        pass
    file.write(COMING[3:])
    with pytest.raises(OSError, match="has been removed"):
        file.finish(target)
    file.discard()
    assert not target.exists()
    assert not any((home.blobs / "incoming").iterdir())


# A server that ends leaves no connection open, whatever its peer does with it.


LARGE = bytes(16_000_000)  # more than the operating system takes for a peer that does not read


def is_paused(connection: object) -> bool:
    return isinstance(connection, H11Protocol) and connection.flow.write_paused


def test_an_answer_that_nobody_reads_is_cut_off(tmp_path: Path, contract: Contract) -> None:
    FolderBlobs(tmp_path).put(LARGE)
    with listening_socket("127.0.0.1", 0) as listener:
        address = listener.getsockname()
        settings = StoreSettings(folder=tmp_path, public_urls=(url_of(listener),))
        server = server_for(settings, contract.ledger)
        server.config.timeout_graceful_shutdown = 0
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        with socket.create_connection(address, timeout=PATIENCE_SECONDS) as peer:
            peer.sendall(f"GET {path_of(LARGE)} HTTP/1.1\r\nHost:\r\n\r\n".encode())
            assert peer.recv(12) == b"HTTP/1.1 200"
            while not any(map(is_paused, server.server_state.connections)):
                assert thread.is_alive()
                time.sleep(0.005)
            server.should_exit = True
            thread.join()
            assert not server.server_state.connections
