"""A bucket's host may say anything: it holds nobody, and fills nobody's memory."""

from __future__ import annotations

import contextlib
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from ledger.protocol.documents.envelope import EnvelopeKind
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import BlobError, BlobUnreachableError
from ledger.storage.mailboxes.location import mailbox_at
from ledger.storage.opening import store_at
from tests.actors.support import DOMAIN
from tests.storage.s3 import ONE_SERVER

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = ONE_SERVER

ENDLESS = 10**12
MOST = 1_000


class Host(BaseHTTPRequestHandler):
    """Says little and sends more, or says much and drips."""

    sent = 0

    def log_message(self, *_: object) -> None:
        """Keep still."""

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
        """Return what is sent next."""
        return bytes(1 << 16)


class Dripping(Host):
    """Sends a byte now and then."""

    def piece(self) -> bytes:
        """Return a byte, after a while."""
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
    told = keys | {"endpoint_url": f"http://127.0.0.1:{server.server_port}"}
    monkeypatch.setitem(fsspec.config.conf, "s3", told)
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
    monkeypatch.setattr("ledger.storage.timed.ACT_SECONDS", 0.3)
    monkeypatch.setattr("ledger.storage.timed.GRACE_SECONDS", 0.3)
    yield from hosted(Dripping, "dripping", monkeypatch)


def test_no_more_is_read_than_was_asked_for(endless: str) -> None:
    Host.sent = 0
    with pytest.raises(BlobError, match=f"larger than the {MOST} bytes"):
        store_at(endless).get(sha256(b"x"), MOST)
    assert Host.sent < 64 << 20, "what fits into buffers, and no more"


def test_who_drips_holds_nobody(dripping: str) -> None:
    store, mailbox = store_at(dripping), mailbox_at(dripping)
    begun = time.monotonic()
    with pytest.raises(BlobUnreachableError, match="the place fails"):
        store.get(sha256(b"x"))
    with pytest.raises(BlobError, match="cannot be written"):
        store.put(b"x")
    with pytest.raises(OSError, match="the place fails"):
        mailbox.listed(DOMAIN, 1, EnvelopeKind.PAYLOAD)
    assert time.monotonic() - begun < 20
