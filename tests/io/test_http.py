"""A server may drip, swell, break off or stay silent: a request ends in time, and in bounds."""

from __future__ import annotations

import contextlib
import gc
import gzip
import itertools
import logging
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from ledger.io.http import HttpFailureError, HttpResponse, HttpServer, ResponseTooLargeError
from tests.patience import PATIENCE_SECONDS

DEADLINE = 0.2  # for what never ends by itself
PIECES, PAUSE = 6_000, 0.02  # of a server that drips: two minutes
HEAD = b"HTTP/1.1 200 OK\r\n"


@contextlib.contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Let a function talk to each connection; yield the URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads: list[threading.Thread] = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threads.append(threading.Thread(target=talk, args=(connection,)))
                    threads[-1].start()

        def talk(connection: socket.socket) -> None:
            connection.settimeout(PATIENCE_SECONDS)
            with connection, contextlib.suppress(OSError):
                serve(connection)

        acceptor = threading.Thread(target=accept)
        acceptor.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            acceptor.join()
            for thread in threads:
                thread.join()


def answering(*pieces: bytes, pause: float = 0.0) -> Callable[[socket.socket], None]:
    def serve(connection: socket.socket) -> None:
        connection.recv(100_000)
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(pause)

    return serve


def waiting_for(event: threading.Event) -> Callable[[socket.socket], None]:
    def serve(_: socket.socket) -> None:
        event.wait(PATIENCE_SECONDS)

    return serve


def get(url: str, most: int = 1_000, path: str = "") -> HttpResponse:
    server = HttpServer(url, PATIENCE_SECONDS)
    try:
        return server.get(path, most)
    finally:
        server.close()


def body(content: bytes, *headers: str) -> bytes:
    lines = [f"Content-Length: {len(content)}", *headers, "", ""]
    return HEAD + "\r\n".join(lines).encode() + content


def dripped(data: bytes) -> list[bytes]:
    return [bytes([byte]) for byte in data]


@pytest.mark.parametrize(
    ("first", "dripped_on"),
    [
        (dripped(HEAD + b"Content-Length: 9999\r\n\r\n"), b"x"),
        ([HEAD, b"X-Long: "], b"y"),
        ([HEAD + b"Content-Length: 9999\r\n\r\n"], b"x"),
        ([HEAD + b"Transfer-Encoding: chunked\r\n\r\n"], b"1\r\nx\r\n"),
        ([HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n"], b"a: b\r\n"),
        ([], b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["everything", "headers", "body", "chunks", "trailers", "continue"],
)
def test_a_server_that_drips_is_given_up_at_the_deadline(
    first: list[bytes], dripped_on: bytes
) -> None:
    """The connection is closed long before the server has sent all that it would send."""
    sent: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        connection.recv(100_000)
        for piece in itertools.chain(first, itertools.repeat(dripped_on, PIECES)):
            connection.sendall(piece)
            sent.append(piece)
            time.sleep(PAUSE)

    with (
        listening(serve) as url,
        contextlib.closing(HttpServer(url, DEADLINE)) as server,
        pytest.raises(HttpFailureError, match=r"no whole answer in 0\.2 s"),
    ):
        server.get("", 10_000)
    assert len(sent) < len(first) + PIECES


def test_a_silent_server_is_abandoned_before_the_deadline() -> None:
    silent = threading.Event()
    with listening(waiting_for(silent)) as url:
        with pytest.raises(HttpFailureError, match=r"silent for 0\.2 s"):
            HttpServer(url, PATIENCE_SECONDS, silence_seconds=0.2).get("", 10)
        silent.set()


@pytest.mark.parametrize("proxied", [False, True])
def test_a_server_silent_in_the_handshake_is_abandoned(
    proxied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()

    def serve(connection: socket.socket) -> None:
        if proxied and connection.recv(10_000):
            connection.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
        while connection.recv(10_000):
            pass
        ended.set()

    with listening(serve) as url:
        monkeypatch.setenv("https_proxy", url)
        server = HttpServer("https://node.example" if proxied else f"https{url[4:]}", DEADLINE)
        with pytest.raises(HttpFailureError, match="no whole answer"):
            server.get("", 10)
        assert ended.wait(PATIENCE_SECONDS), "nothing is left open"


def test_a_hanging_host_name_lookup_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = threading.Event()
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *_, **__: silent.wait(PATIENCE_SECONDS) and []
    )
    with pytest.raises(HttpFailureError, match=r"http://node\.example: no whole answer"):
        HttpServer("http://node.example", DEADLINE).get("", 10)
    silent.set()


def test_a_server_that_does_not_read_is_given_up() -> None:
    silent = threading.Event()
    with listening(waiting_for(silent)) as url:
        with pytest.raises(HttpFailureError, match="no whole answer"):
            HttpServer(url, DEADLINE).post("", b"x" * 50_000_000, {}, 10)
        silent.set()


@pytest.mark.parametrize(
    "sent",
    [
        body(b"hello"),
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        HEAD + b"\r\nhello",
        body(b"hello", "Content-Encoding: identity"),
    ],
    ids=["length", "chunked", "until closed", "identity"],
)
def test_an_answer_is_read_however_it_is_framed(sent: bytes) -> None:
    with listening(answering(sent)) as url:
        assert get(url, 5) == HttpResponse(200, b"hello")
        with pytest.raises(ResponseTooLargeError, match="the response has over 4 bytes"):
            get(url, 4)


@pytest.mark.parametrize("encoding", ["gzip", "deflate, gzip"])
def test_an_answer_that_could_swell_in_unpacking_is_refused(encoding: str) -> None:
    asked: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        asked.append(connection.recv(10_000))
        bomb = gzip.compress(bytes(1_000_000))
        connection.sendall(body(bomb, f"Content-Encoding: {encoding}"))

    with (
        listening(serve) as url,
        pytest.raises(HttpFailureError, match=f"{url}: unsupported encoding '{encoding}'"),
    ):
        get(url, most=10_000_000)
    assert b"\r\nAccept-Encoding: identity\r\n" in asked[0]


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        HEAD + b"Content-Length: 500\r\n\r\nshort",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        HEAD + b"X: y\r\n" * 50_000 + b"\r\n",
        HEAD + b"X: " + b"y" * 200_000 + b"\r\n\r\n",
    ],
)
def test_an_answer_cut_off_or_not_http_is_a_failure(sent: bytes) -> None:
    with listening(answering(sent)) as url, pytest.raises(HttpFailureError, match="unreachable"):
        get(url)


def test_a_connection_ends_with_its_server_closed_or_forgotten() -> None:
    ended = threading.Semaphore(0)

    def serve(connection: socket.socket) -> None:
        while connection.recv(10_000):
            connection.sendall(body(b"ok"))
        ended.release()

    with listening(serve) as url:
        server = HttpServer(url, PATIENCE_SECONDS)
        for _ in range(2):
            server.get("", 10)
            server.close()
            assert ended.acquire(timeout=PATIENCE_SECONDS), "closed, and of use again"
        server.get("", 10)
        del server
        gc.collect()
        assert ended.acquire(timeout=PATIENCE_SECONDS), "forgotten"


def test_an_interrupt_ends_the_wait_and_the_request() -> None:
    ended = threading.Event()

    def serve(connection: socket.socket) -> None:
        while connection.recv(10_000):
            os.kill(os.getpid(), signal.SIGINT)
        ended.set()

    with listening(serve) as url, contextlib.closing(HttpServer(url, PATIENCE_SECONDS)) as server:
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            server.get("", 10)
        assert time.monotonic() - began < PATIENCE_SECONDS, "the request's own time"
        assert ended.wait(PATIENCE_SECONDS)


def test_a_forked_process_talks_over_connections_of_its_own() -> None:
    opened: list[int] = []

    def serve(connection: socket.socket) -> None:
        opened.append(1)
        while connection.recv(10_000):
            connection.sendall(body(b"ok"))

    with listening(serve) as url, contextlib.closing(HttpServer(url, PATIENCE_SECONDS)) as server:
        assert server.get("", 10).body == b"ok"
        child = multiprocessing.get_context("fork").Process(target=server.get, args=("", 10))
        child.start()
        child.join(PATIENCE_SECONDS)
        child.kill()
        assert child.exitcode == 0
        assert server.get("", 10).body == b"ok"
    assert len(opened) == 2


def test_a_program_ends_at_once_and_in_silence_while_it_still_asks() -> None:
    slow_has_come = threading.Event()

    def serve(connection: socket.socket) -> None:
        while asked := connection.recv(10_000):
            if b"/slow" in asked:
                slow_has_come.set()
                continue
            slow_has_come.wait(PATIENCE_SECONDS)
            connection.sendall(body(b"ok"))

    program = (
        "import sys, threading\n"
        "from ledger.io.http import HttpServer\n"
        f"server = HttpServer(sys.argv[1], {2 * PATIENCE_SECONDS})\n"
        "threading.Thread(target=server.get, args=('/slow', 10), daemon=True).start()\n"
        "server.get('/once-slow-has-come', 10)"
    )
    with listening(serve) as url:
        command = [sys.executable, "-W", "error", "-c", program, url]
        told = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
        )
    assert not told.stderr


def test_path_query_and_credentials_appear_in_no_message(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        asked.append(connection.recv(10_000))
        strange = b"HTTP/1.1 302 Found\r\nLocation: mailto:x\r\nContent-Length: 0\r\n\r\n"
        connection.sendall(body(b"") if b"GET /key/first" in asked[-1] else strange)

    caplog.set_level(logging.INFO)
    with listening(serve) as url:
        secret = url.replace("//", "//me:p%40ss@") + "/key/?token=abc"
        assert get(secret, path="/first").status == 200
        with pytest.raises(HttpFailureError) as caught:
            get(secret, path="/ab/abcd")
    assert not caplog.text
    del asked[0]
    assert asked[0].startswith(b"GET /key/ab/abcd?token=abc HTTP/1.1\r\n")
    assert b"Authorization: Basic bWU6cEBzcw==\r\n" in asked[0]
    assert str(caught.value) == f"{url}: unreachable (InvalidURL)"


def test_the_environments_proxy_carries_what_is_not_on_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        asked.append(connection.recv(10_000))
        refused = b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"
        connection.sendall(refused if asked[-1].startswith(b"CONNECT") else body(b"carried"))

    with listening(serve) as url:
        monkeypatch.setenv("http_proxy", url.replace("//", "//me:pass@"))
        monkeypatch.setenv("https_proxy", url)
        assert get("http://node.example/v1").body == b"carried"
        with pytest.raises(HttpFailureError, match=r"https://node\.example: unreachable"):
            get("https://node.example/v1")
        with pytest.raises(HttpFailureError):
            get("http://127.0.0.1:1/")
    assert asked[0].startswith(b"GET http://node.example/v1 HTTP/1.1\r\nHost: node.example\r\n")
    assert b"Proxy-Authorization: Basic bWU6cGFzcw==\r\n" in asked[0]
    assert asked[1].startswith(b"CONNECT node.example:443 HTTP/1.1\r\n")
    assert len(asked) == 2, "loopback is never asked by way of a proxy"
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:1")
    with pytest.raises(ValueError, match=r"cannot be used \(ImportError\); a proxy must be"):
        HttpServer("http://node.example", 1)
    monkeypatch.setenv("http_proxy", "ftp://me:secret@127.0.0.1:1")
    with pytest.raises(ValueError, match="the environment's http_proxy") as caught:
        HttpServer("http://node.example", 1)
    assert "secret" not in str(caught.value)
    HttpServer("http://localhost:1", 1)


@pytest.mark.parametrize(
    "url",
    [
        *("", "ftp://h", "http://", "h:80", "http://[::1", "http://h:99999", "http://h:0"),
        *("http://h/ ", "http://h/\n", "http://é", "http://xn--a", "http://h:x"),
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="the address "):
        HttpServer(url, 1)
