"""Buckets: whatever their host says, it blocks nobody and fills nobody's memory."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ledger.protocol.documents.envelope import EnvelopeKind, encode_envelope
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import BlobError, BlobMissingError, BlobUnreachableError
from ledger.storage.mailbox import board_folder
from ledger.storage.opening import mailbox_at, store_at
from tests.storage.s3 import ONE_SERVER
from tests.storage.test_mailbox import envelope
from tests.support.keys import DOMAIN

pytestmark = ONE_SERVER

ENDLESS = 10**12
LIMIT = 1_000
KIND = EnvelopeKind.PAYLOAD


@pytest.mark.usefixtures("s3")
def test_a_bucket_that_is_not_there_takes_nothing() -> None:
    store = store_at("s3://no-such-bucket-here/x")
    for _ in range(2):
        with pytest.raises(BlobError, match="cannot be written"):
            store.put(b"x")
    with pytest.raises(BlobMissingError):
        store.get(sha256(b"x"))


@pytest.mark.usefixtures("s3")
def test_a_server_that_is_away_says_nothing_of_the_blob(monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec.config

    settings = dict(fsspec.config.conf["s3"]) | {"endpoint_url": "http://127.0.0.1:9"}
    settings |= {"config_kwargs": {"retries": {"max_attempts": 0}}}
    monkeypatch.setitem(fsspec.config.conf, "s3", settings)
    monkeypatch.setattr("s3fs.core.S3FileSystem.retries", 1)
    store = store_at("s3://away/x")
    for ask in (store.get, store.has):
        with pytest.raises(BlobUnreachableError, match="s3://away fails"):
            ask(sha256(b"x"))
    with pytest.raises(BlobError, match="cannot be written"):
        store.put(b"x")


def test_a_location_without_its_packages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BlobError, match="nosuch://host: fsspec finds no blobs or mail"):
        store_at("nosuch://user:SECRET@host/x")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(BlobError, match=r"s3://bucket needs the extra \[remote\]"):
        store_at("s3://key:SECRET@bucket/x")


def test_foreign_objects_are_passed_over() -> None:
    from fsspec.core import url_to_fs

    location, good = "memory://mail-of-a-test", envelope(7)
    mailbox_at(location).put(good)
    files, root = url_to_fs(location)
    data, folder = encode_envelope(good), board_folder((DOMAIN, 1, KIND))
    for name, content in (("README", b"x"), ("ab" * 32, data), (sha256(b"").hex(), b"")):
        files.pipe_file(f"{root}/{folder}/{name}", content)
    assert mailbox_at(location).listed(DOMAIN, 1, KIND) == [good]


class Host(BaseHTTPRequestHandler):
    """Says little and sends more, or says much and drips."""

    sent = 0

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "10")
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(ENDLESS))
        self.end_headers()
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(piece := self.piece())
                type(self).sent += len(piece)

    def do_PUT(self) -> None:
        self.do_GET()

    def piece(self) -> bytes:
        return bytes(1 << 16)


class Dripping(Host):
    """Sends a byte now and then."""

    def piece(self) -> bytes:
        time.sleep(0.02)
        return b"<"


def hosted(host: type[Host], name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    pytest.importorskip("s3fs", reason="needs the extra [remote]")
    import fsspec.config

    server = ThreadingHTTPServer(("127.0.0.1", 0), host)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    keys = {"key": "PUBLIC-TEST-KEY", "secret": "PUBLIC-TEST-SECRET"}
    settings = keys | {"endpoint_url": f"http://127.0.0.1:{server.server_port}"}
    monkeypatch.setitem(fsspec.config.conf, "s3", settings)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    try:
        yield f"s3://{name}/x"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    yield from hosted(Host, "endless", monkeypatch)


@pytest.fixture
def dripping(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr("ledger.storage.bucket.OPERATION_SECONDS", 0.3)
    monkeypatch.setattr("ledger.storage.bucket.READ_SECONDS", 0.3)
    yield from hosted(Dripping, "dripping", monkeypatch)


def test_no_more_is_read_than_was_asked_for(endless: str) -> None:
    Host.sent = 0
    with pytest.raises(BlobError, match=f"larger than the {LIMIT} bytes"):
        store_at(endless).get(sha256(b"x"), LIMIT)
    assert Host.sent < 64 << 20, "what fits into buffers, and no more"


def test_a_dripping_host_blocks_nobody(dripping: str) -> None:
    """It would drip until the other side closes the connection."""
    store, mailbox = store_at(dripping), mailbox_at(dripping)
    with pytest.raises(BlobUnreachableError, match="s3://dripping fails"):
        store.get(sha256(b"x"))
    with pytest.raises(BlobError, match="cannot be written"):
        store.put(b"x")
    with pytest.raises(OSError, match="s3://dripping fails"):
        mailbox.listed(DOMAIN, 1, EnvelopeKind.PAYLOAD)
