"""Objects over HTTP: verified like those of a folder, and a failing server is no damaged blob."""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from ledger.io.http import HttpFailureError, HttpResponse, HttpServer, ResponseTooLargeError
from ledger.io.retry import Backoff, RetryPolicy
from ledger.protocol.documents.envelope import EnvelopeKind, encode_envelope
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import BlobError, BlobMissingError, BlobUnreachableError
from ledger.storage.blobs import FolderBlobs, ObjectBlobs
from ledger.storage.http import MAX_PAGES, SCAN_SECONDS, TRANSIENT, HttpObjects, static_server
from ledger.storage.mailbox import Mailbox, Page, encode_page
from ledger.storage.opening import reader_at
from tests.storage.test_mailbox import envelope
from tests.support.keys import DOMAIN

KIND = EnvelopeKind.PAYLOAD
X = sha256(b"x")


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


@contextlib.contextmanager
def blobs_at(url: str, **options: Any) -> Iterator[ObjectBlobs]:
    objects = static_server(url, **options)
    try:
        yield ObjectBlobs(objects)
    finally:
        objects.close()


@pytest.fixture
def folder(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs(tmp_path / "blobs")


@pytest.fixture
def url(folder: FolderBlobs) -> Iterator[str]:
    with serving(functools.partial(Quiet, directory=str(folder.folder))) as url:
        yield url


def test_any_static_server_over_the_folder_will_do(folder: FolderBlobs, url: str) -> None:
    digests = [folder.put(data) for data in (b"", b"hello", bytes(100_000))]
    with blobs_at(f"{url}/") as blobs:
        for digest in digests:
            assert blobs.get(digest) == folder.get(digest)
            assert blobs.has(digest)
        absent = sha256(b"never published")
        assert not blobs.has(absent)
        with pytest.raises(BlobMissingError, match=absent.hex()):
            blobs.get(absent)


@pytest.mark.parametrize("other", [b"hullo", b"", b"hell", b"<html>not found</html>"])
def test_other_bytes_are_refused_and_say_nothing_of_the_blob(
    folder: FolderBlobs, url: str, other: bytes
) -> None:
    digest = folder.put(b"hello")
    folder.path_of(digest).write_bytes(other)
    with blobs_at(url) as blobs, pytest.raises(BlobUnreachableError, match="returned other bytes"):
        blobs.get(digest)


@pytest.mark.parametrize("status", [204, 302, 403, 500])
def test_a_server_that_fails_says_nothing_of_the_blob(status: int) -> None:
    handler = type("Handler", (Answering,), {"status": status})
    with serving(handler) as url, blobs_at(url) as blobs:
        for ask in (blobs.get, blobs.has):
            with pytest.raises(BlobUnreachableError, match=f"returned HTTP status {status}"):
                ask(X)


@pytest.mark.parametrize(
    "text", ["HTTPS:/u:SECRET@host/blobs", "http:/host?key=SECRET", "u:SECRET@h"]
)
def test_a_location_that_may_hold_a_secret_is_not_repeated(text: str) -> None:
    with pytest.raises(BlobError, match="is not a local folder") as caught:
        reader_at(text)
    assert "SECRET" not in str(caught.value)


def test_a_server_that_never_answers_is_not_asked_for_ever() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with blobs_at(url, timeout_seconds=0.05, max_failures=2) as blobs:
            for _ in range(2):
                with pytest.raises(BlobUnreachableError, match="no whole answer in"):
                    blobs.get(X)
            with pytest.raises(BlobUnreachableError, match="sent no complete response 2 times"):
                blobs.get(X)


def test_token_unfit_for_a_header_is_refused_and_not_shown() -> None:
    for token, url in (("a b", "http://x"), ("a\r\nb", "http://x"), ("ab", "http://u:p@x")):
        with pytest.raises(BlobError) as refused:
            static_server(url, token=token)
        assert token not in str(refused.value)


class Server(HttpServer):
    """Answers with the statuses that it is given, and raises those that are errors."""

    def __init__(self, *answers: int | Exception) -> None:
        super().__init__("http://x", 1.0)
        self.answers = list(answers)

    def head(self, path: str) -> HttpResponse:  # noqa: ARG002
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return HttpResponse(answer, b"")


def asked(*answers: int | Exception) -> tuple[bool | None, list[float], list[int | Exception]]:
    """Return whether an object is there (None: the server fails), the waits and unused answers."""
    waits: list[float] = []
    server = Server(*answers)
    objects = HttpObjects(
        server, retry=RetryPolicy(Backoff(0.5, 4), attempts=3, sleep=waits.append)
    )
    try:
        found = objects.has("ab/abcd")
    except OSError:
        found = None
    objects.close()
    return found, waits, server.answers


def test_a_transient_failure_is_retried() -> None:
    assert asked(200) == (True, [], [])
    assert asked(503, 200) == (True, [0.5], [])
    assert asked(HttpFailureError("away"), 408, 404) == (False, [0.5, 2.0], [])
    for status in (400, 403, 413, 429, 507):
        assert status not in TRANSIENT
        assert asked(status, 200) == (None, [], [200])


def test_a_server_is_not_retried_for_ever() -> None:
    assert asked(503, 503, 503, 200) == (None, [0.5, 2.0], [200])
    failures = [HttpFailureError(name) for name in ("first", "second", "third")]
    assert asked(*failures) == (None, [0.5, 2.0], [])
    assert asked(ResponseTooLargeError("over the bound"), 200) == (None, [], [200])


class Paging(BaseHTTPRequestHandler):
    """Answers each request with what a function makes of `after` and of how many came before."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body at once: apart, the second waits for the first one's receipt
    page: ClassVar[Callable[[int, int], Page]]
    asked: ClassVar[list[int]]

    def do_GET(self) -> None:
        after = int(parse_qs(urlsplit(self.path).query)["after"][0])
        body = encode_page(type(self).page(after, len(self.asked)))
        self.asked.append(after)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def paging(page: Callable[[int, int], Page]) -> type[Paging]:
    return type("PagingServer", (Paging,), {"page": staticmethod(page), "asked": []})


def repeated(after: int, _: int) -> Page:
    return Page(bytes(16), after, (encode_envelope(envelope(1)),))


@contextlib.contextmanager
def mailbox_of(
    handler: type[Paging], clock: Callable[[], float] = time.monotonic
) -> Iterator[Mailbox]:
    with serving(handler) as url:
        objects = HttpObjects(HttpServer(url, 30.0), clock=clock)
        yield Mailbox(objects)
        objects.close()


def test_a_server_that_repeats_itself_for_ever_is_left() -> None:
    handler = paging(repeated)
    with mailbox_of(handler) as mailbox:
        assert mailbox.listed(DOMAIN, 1, KIND) == [envelope(1)]
        assert len(handler.asked) == MAX_PAGES


def test_a_server_that_drips_pages_blocks_one_scan_briefly() -> None:
    handler, seconds = paging(repeated), SCAN_SECONDS / 2
    with mailbox_of(handler, lambda: seconds * len(handler.asked)) as mailbox:
        assert mailbox.listed(DOMAIN, 1, KIND) == [envelope(1)]
        assert handler.asked == [0, 1]
        # The next scan asks for the rest.
        assert mailbox.listed(DOMAIN, 1, KIND) == [envelope(1)]
        assert handler.asked == [0, 1, 2, 3]
