"""A header that a stranger has seen: it is of use at one store, for one path, and cuts nobody."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest

from api.sockets import listening_socket
from api.store.receiver import PIECE
from api.store.serve_store import resolve_public_urls, serve
from api.store.slots import DIGESTS_AT_ONCE, SAME_AT_ONCE, SILENT_AT_ONCE
from api.store.store_settings import StoreSettings
from ledger.protocol.documents.envelope import encode_envelope
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import BlobError, ConfigurationError
from ledger.storage.blobs import ObjectBlobs
from ledger.storage.http import NO_RETRY, store_server
from ledger.storage.opening import mailbox_at, store_at
from tests.actors.support import PARAMETERS
from tests.api.conftest import refused
from tests.api.store.conftest import path_of, stored, uploads_of
from tests.api.store.test_mail import board_of, envelope
from tests.patience import PATIENCE_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

    from tests.api.store.conftest import Contract, Store

DATA = b"what a client wants to keep"


def shown(store: Store, data: bytes, header: str, path: str | None = None) -> httpx.Response:
    headers = {"Authorization": header}
    return store.http.put(path_of(data) if path is None else path, content=data, headers=headers)


class Bodies:
    """Bodies that are being sent to a store, each over a connection of its own."""

    def __init__(self, store: Store, stack: ExitStack) -> None:
        self._store = store
        self._stack = stack

    def begin(self, data: bytes, sent: bytes, client: int = 0) -> socket.socket:
        """Show a client's header for some bytes, and send what need not be the first of them."""
        host, port = self._store.url.removeprefix("http://").split(":")
        connection = socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)
        self._stack.enter_context(connection)
        head = f"PUT {path_of(data)} HTTP/1.1\r\nHost:\r\nContent-Length: {len(data)}\r\n"
        head += f"Authorization: {self._store.header(data, client)}\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode() + sent)
        return connection

    def incoming(self) -> list[int]:
        """Return how much of each body is on the disk."""
        found = []
        for path in self._store.folder.glob("incoming/*"):
            try:
                found.append(path.stat().st_size)
            except FileNotFoundError:
                continue
        return found

    def wait_for_files(self, count: int, size: int = 0) -> None:
        """Return once so many bodies lie on the disk with so many bytes at least."""
        wait_until(lambda: sum(one >= size for one in self.incoming()) >= count, self.incoming)


@contextmanager
def bodies(store: Store) -> Iterator[Bodies]:
    with ExitStack() as stack:
        yield Bodies(store, stack)


def status(connection: socket.socket) -> int:
    return int(connection.recv(100).split(b" ")[1])


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


def test_mail_for_one_store_is_refused_by_every_other(tmp_path: Path, contract: Contract) -> None:
    with stored(tmp_path / "its", contract) as its, stored(tmp_path / "other", contract) as other:
        data = encode_envelope(envelope(its.domain, 1))
        path = f"{board_of(envelope(its.domain, 1))}/{sha256(data).hex()}"
        header = its.signed(its.upload(data, path=path))
        refused(shown(other, data, header, path), 401, "upload-elsewhere")
        assert shown(its, data, header, path).status_code == 201


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


def test_behind_a_proxy_the_store_has_its_configured_url(
    tmp_path: Path, contract: Contract
) -> None:
    outside = "https://store.example/cmfl"
    with stored(tmp_path / "store", contract, public_urls=(outside,)) as store:
        refused(store.put(DATA), 401, "upload-elsewhere")
        upload = store.upload(DATA)
        proxied = replace(upload, url=f"{outside}{path_of(DATA)}")
        assert shown(store, DATA, store.signed(proxied)).status_code == 201


def test_a_store_that_is_given_no_url_takes_nothing(tmp_path: Path, contract: Contract) -> None:
    with stored(tmp_path / "store", contract, public_urls=()) as store:
        refused(store.put(DATA), 401, "upload-elsewhere")


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
def test_a_store_on_every_address_is_told_its_url(
    tmp_path: Path, contract: Contract, host: str
) -> None:
    with pytest.raises(ConfigurationError, match="--public-url, the URL that clients are given"):
        serve(StoreSettings(folder=tmp_path), contract.ledger, host, 0)
    assert list(tmp_path.iterdir()) == [], "nothing is written"


@pytest.mark.parametrize("url", ["", "store.example", "ftp://x", "http://u:p@x", "http://x/?a=b"])
def test_what_is_no_public_url_is_refused(tmp_path: Path, contract: Contract, url: str) -> None:
    settings = StoreSettings(folder=tmp_path, public_urls=(url,))
    with pytest.raises(ConfigurationError, match="--public-url"):
        serve(settings, contract.ledger, "127.0.0.1", 0)


def test_slow_replays_do_not_interrupt_the_copied_upload(store: Store) -> None:
    data = bytes(2 * PIECE)
    with bodies(store) as sending:
        own = sending.begin(data, data[:-1])
        sending.wait_for_files(1, PIECE)
        replays = [sending.begin(data, b"x")]
        sending.wait_for_files(2)
        for _ in range(30):
            replays.append(sending.begin(data, b"x"))
            assert status(replays[-2]) == 408
        own.sendall(data[-1:])
        assert status(own) == 201


def test_who_comes_while_replays_drip_takes_the_place_of_one(store: Store) -> None:
    data = bytes(2 * PIECE)
    with bodies(store) as sending:
        replays = [sending.begin(data, b"x") for _ in range(SAME_AT_ONCE)]
        sending.wait_for_files(len(replays))
        assert store.put(data).status_code == 201
        assert store.http.get(path_of(data)).content == data


def test_replays_of_many_other_headers_do_not_cut_an_upload(store: Store) -> None:
    data = bytes(2 * PIECE)
    with bodies(store) as sending:
        own = sending.begin(data, data[:-1])
        sending.wait_for_files(1, PIECE)
        others = [b"seen earlier %d" % number for number in range(3 * DIGESTS_AT_ONCE)]
        replays = []
        for number, other in enumerate(others):
            replays.append(sending.begin(other, other[:1]))
            if number >= DIGESTS_AT_ONCE - 1:
                assert status(replays[number - DIGESTS_AT_ONCE + 1]) == 408
            else:
                sending.wait_for_files(number + 2)
        own.sendall(data[-1:])
        assert status(own) == 201


def test_headers_that_nothing_follows_keep_nobody_out(store: Store) -> None:
    data = bytes(PIECE)
    with bodies(store) as sending:
        silent = [sending.begin(data, b"") for _ in range(SILENT_AT_ONCE + 5)]

        def of_too_many() -> list[socket.socket]:
            cut = select.select(silent, [], [], 0)[0]
            return cut if len(cut) >= 5 else []

        cut = wait_until(of_too_many)
        assert {status(connection) for connection in cut} == {408}
        assert sending.incoming() == []
        assert store.put(data).status_code == 201
        assert store.put(DATA).status_code == 201


def test_junk_under_a_replayed_header_costs_its_client_nothing_more(
    tmp_path: Path, contract: Contract
) -> None:
    data, other = bytes(2 * PIECE), bytes(2 * PIECE + 1)
    bounds = {"quota_bytes": len(data) + len(other), "quota_blobs": 2}
    with stored(tmp_path / "store", contract, **bounds) as store, bodies(store) as sending:
        junk = [sending.begin(data, b"x" * (len(data) - 1)) for _ in range(SAME_AT_ONCE)]
        sending.wait_for_files(len(junk), PIECE)
        assert store.put(other).status_code == 201
        for connection in junk:
            connection.sendall(b"x")
            assert status(connection) == 422
        for _ in range(8):
            refused(
                shown(store, b"x" * len(data), store.header(data), path_of(data)), 422, "body-wrong"
            )
        assert store.put(data).status_code == 201
        refused(store.put(b"one more"), 429, "quota-exceeded")


def test_concurrent_copies_of_one_blob_fill_no_disk(tmp_path: Path, contract: Contract) -> None:
    data = bytes(2 * PIECE)
    with (
        stored(tmp_path / "store", contract, quota_bytes=len(data)) as store,
        bodies(store) as sending,
    ):
        coming = []
        for number in range(SAME_AT_ONCE + 4):
            coming.append(sending.begin(data, data[:-1]))
            if number < SAME_AT_ONCE:
                sending.wait_for_files(number + 1, PIECE)
            else:
                # Any of them: which had the least of late, its last piece decides.
                (cut, *_), _, _ = select.select(coming, [], [], 20)
                assert status(cut) == 408
                coming.remove(cut)
            assert len(sending.incoming()) <= SAME_AT_ONCE + 1
        # They are charged once between them.
        assert store.put(data).status_code == 201


def test_many_clients_are_served_while_each_ones_header_is_replayed(store: Store) -> None:
    clients = range(PARAMETERS.clients)
    data = {client: bytes([client]) * (2 * PIECE) for client in clients}
    with bodies(store) as sending:
        own = {client: sending.begin(data[client], data[client][:-1], client) for client in clients}
        sending.wait_for_files(len(own), PIECE)
        for _ in range(2 * SAME_AT_ONCE):
            for client in clients:
                sending.begin(data[client], b"x", client)
        for client in clients:
            own[client].sendall(data[client][-1:])
        assert {status(connection) for connection in own.values()} == {201}
