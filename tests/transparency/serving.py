"""Witnesses and logs over real HTTP on loopback."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from starlette.types import ASGIApp

from api.http.server import bounded_server, listening_socket, url_of
from api.transparency import create_static_log, create_witness
from ledger.transparency.network import WitnessFolder
from ledger.transparency.notes import SigningKey, VerifierKey
from tests.api.served import in_a_thread
from tests.transparency.support import LOG, NOW


@contextmanager
def served(app: ASGIApp, allowed_hosts: Collection[str] = ()) -> Iterator[str]:
    with (
        listening_socket("127.0.0.1", 0) as listener,
        in_a_thread(bounded_server(app, allowed_hosts), listener),
    ):
        yield url_of(listener)


@dataclass
class Clock:
    """Seconds that a test sets."""

    now: float = NOW

    def __call__(self) -> float:
        return self.now


@contextmanager
def witness_at(
    folder: Path,
    key: SigningKey,
    clock: Callable[[], float] | None = None,
    logs: Sequence[VerifierKey] = (LOG.verifier,),
) -> Iterator[str]:
    with served(create_witness(WitnessFolder(folder, logs, key, clock or Clock()))) as url:
        yield url


@contextmanager
def log_at(folder: Path) -> Iterator[str]:
    with served(create_static_log(folder)) as url:
        yield url


@dataclass
class Answers:
    """What a lying server says, by path; the rest is 404."""

    by_path: dict[str, tuple[int, bytes]] = field(default_factory=dict)

    def of(self, path: str) -> tuple[int, bytes]:
        return self.by_path.get(path, (404, b""))


@contextmanager
def lying(answers: Answers) -> Iterator[str]:
    """Yield the URL of a server that says what it is told to."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, body = answers.of(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
