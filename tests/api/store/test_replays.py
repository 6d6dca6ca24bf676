"""A header that a stranger has seen: it is of use at one store, for one path, and cuts nobody."""

from __future__ import annotations

import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from api.http.server import listening_socket
from api.settings import StoreSettings
from api.store.app import resolve_public_urls, serve
from ledger.protocol.documents.envelope import encode_envelope
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import BlobError, ConfigurationError
from ledger.storage.blobs import ObjectBlobs
from ledger.storage.http import NO_RETRY, store_server
from ledger.storage.opening import mailbox_at, store_at
from tests.api.conftest import refused
from tests.api.store.conftest import Contract, Store, path_of, stored, uploads_of
from tests.api.store.test_mail import board_of, envelope

DATA = b"what a client wants to keep"


def shown(store: Store, data: bytes, header: str, path: str | None = None) -> httpx.Response:
    headers = {"Authorization": header}
    return store.http.put(path_of(data) if path is None else path, content=data, headers=headers)


def test_a_signature_for_one_store_is_refused_by_others(tmp_path: Path, contract: Contract) -> None:
    with (
        stored(tmp_path / "its", contract) as its,
        stored(tmp_path / "other", contract, quota_blobs=1) as other,
    ):
        header = its.header(DATA)
        told = refused(shown(other, DATA, header), 401, "upload-elsewhere")
        assert other.url in told["detail"]
        # Whoever shows it chooses the host's name, too.
        claimed = {"Authorization": header, "Host": its.url.removeprefix("http://")}
        answer = other.http.put(path_of(DATA), content=DATA, headers=claimed)
        refused(answer, 401, "upload-elsewhere")
        relabelled = header.replace(its.url, other.url)
        refused(shown(other, DATA, relabelled), 403, "upload-refused")
        assert other.files() == set()
        assert shown(its, DATA, header).status_code == 201
        assert other.put(DATA).status_code == 201, "nor was it charged"


def test_what_is_signed_for_one_path_is_refused_at_another(store: Store) -> None:
    data = encode_envelope(envelope(store.domain, 1))
    path = f"{board_of(envelope(store.domain, 1))}/{sha256(data).hex()}"
    letter, blob = store.signed(store.upload(data, path=path)), store.header(data)
    refused(shown(store, data, letter), 401, "upload-elsewhere")
    refused(shown(store, data, blob, path), 401, "upload-elsewhere")
    refused(shown(store, data, letter, path.replace("/1/", "/2/")), 401, "upload-elsewhere")
    assert shown(store, data, letter, path).status_code == 201
    assert shown(store, data, blob).status_code == 201


class Catcher(BaseHTTPRequestHandler):
    """A host that answers as if it were another place, and keeps what it is shown."""

    caught: list[str]
    realm: str

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.caught.append(self.headers["Authorization"])
        self.send_response(401)
        self.send_header("WWW-Authenticate", f'CMFL realm="{self.realm}"')
        self.send_header("Location", self.realm)
        self.send_header("Content-Type", "application/problem+json")
        self.end_headers()
        self.wfile.write(b'{"type": "urn:cmfl:problem:upload-elsewhere"}')

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_client_signs_for_its_store_whatever_the_host_header(store: Store) -> None:
    handler = type("Its", (Catcher,), {"caught": [], "realm": store.url})
    with HTTPServer(("127.0.0.1", 0), handler) as host:
        thread = threading.Thread(target=host.serve_forever, args=(0.01,))
        thread.start()
        try:
            url = f"http://127.0.0.1:{host.server_port}"
            blobs = ObjectBlobs(store_server(f"{url}/", uploads_of(store.domain), 60.0, NO_RETRY))
            with pytest.raises(
                BlobError, match=f"upload-elsewhere.: its owner does not call it {url}"
            ):
                blobs.put(DATA)
        finally:
            host.shutdown()
            thread.join()
    (header,) = handler.caught  # type: ignore[attr-defined]
    assert header.endswith(f" {url}{path_of(DATA)}")
    refused(shown(store, DATA, header), 401, "upload-elsewhere")


def test_behind_proxy_the_store_has_its_configured_url(tmp_path: Path, contract: Contract) -> None:
    outside = "https://store.example/cmfl"
    with stored(tmp_path / "store", contract, public_urls=(outside,)) as store:
        refused(store.put(DATA), 401, "upload-elsewhere")
        upload = store.upload(DATA)
        proxied = replace(upload, url=f"{outside}{path_of(DATA)}")
        assert shown(store, DATA, store.signed(proxied)).status_code == 201


def test_every_spelling_of_a_store_url_is_one_store(store: Store) -> None:
    port = store.url.rpartition(":")[2]
    for written in (f"HTTP://127.0.0.1:{port}//", f"{store.url}/", f"{store.url}#part"):
        store_at(written, uploads_of(store.domain)).put(written.encode())
        mailbox = mailbox_at(written, uploads_of(store.domain))
        assert mailbox.put(envelope(store.domain, len(written)))
    assert len(store.files()) == 3


def test_without_a_url_a_store_is_where_it_listens() -> None:
    with listening_socket("localhost", 0) as listener:
        port = listener.getsockname()[1]
        urls = resolve_public_urls((), "localhost", listener)
        assert urls[0] == f"http://localhost:{port}"
        assert len(urls) == 2
        given = ("https://Store.example:443/", "https://store.example")
        assert resolve_public_urls(given, "localhost", listener) == ("https://store.example",)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_store_everywhere_is_told_its_url(tmp_path: Path, contract: Contract, host: str) -> None:
    with pytest.raises(ConfigurationError, match="give the clients' URL with --public-url"):
        serve(StoreSettings(folder=tmp_path), contract.ledger, host, 0)
    assert list(tmp_path.iterdir()) == [], "nothing is written"


@pytest.mark.parametrize("url", ["", "store.example", "ftp://x", "http://u:p@x", "http://x/?a=b"])
def test_what_is_no_public_url_is_refused(tmp_path: Path, contract: Contract, url: str) -> None:
    settings = StoreSettings(folder=tmp_path, public_urls=(url,))
    with pytest.raises(ConfigurationError, match="--public-url"):
        serve(settings, contract.ledger, "127.0.0.1", 0)


def test_junk_under_a_replayed_header_costs_its_client_nothing(
    tmp_path: Path, contract: Contract
) -> None:
    with stored(tmp_path / "store", contract, quota_blobs=1) as store:
        header = store.header(DATA)
        for _ in range(4):
            answer = shown(store, bytes(len(DATA)), header, path_of(DATA))
            refused(answer, 422, "body-wrong")
        assert store.put(DATA).status_code == 201
        refused(store.put(b"one more"), 429, "quota-exceeded")
