"""A node behind a proxy that loses requests, answers and patience, as a test tells it to."""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from collections.abc import Callable
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self

import httpx

from ledger.io.parsing import parse_json
from tests.patience import PATIENCE_SECONDS


class Trouble(Enum):
    """What becomes of one request."""

    NONE = auto()
    LOST = auto()  # never reaches the node; the connection is closed
    BAD_GATEWAY = auto()  # never reaches the node; 502
    DONE_AND_CUT = auto()  # the node has done it, but the answer breaks off in the middle
    DONE_AND_BAD_GATEWAY = auto()  # the node has done it; 502
    TWICE = auto()  # the node is asked twice, as by a gateway that tries again; its second answer


class FaultyProxy:
    """Passes requests on to a node, but for the trouble that a function makes."""

    def __init__(
        self,
        node_url: str,
        trouble: Callable[[str], Trouble] = lambda _: Trouble.NONE,
        changed: Callable[[Any, Any], Any] = lambda _, answer: answer,
    ) -> None:
        self.node_url = node_url
        self.trouble = trouble
        self.changed = changed
        self.troubles: Counter[Trouble] = Counter()
        self.client = httpx.Client(trust_env=False, verify=False, timeout=PATIENCE_SECONDS)
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.client.close()


class _Handler(BaseHTTPRequestHandler):
    proxy: ClassVar[FaultyProxy]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    log_message: Callable[..., None] = lambda *_: None

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        trouble = self.proxy.trouble(parse_json(body)["method"])
        self.proxy.troubles[trouble] += 1
        if trouble is Trouble.LOST:
            self._hang_up()
            return
        if trouble is Trouble.BAD_GATEWAY:
            self._answer(502, b"<html>", 6)
            return
        if trouble is Trouble.TWICE:
            self._ask(body)
        content = self._ask(body)
        if trouble is Trouble.DONE_AND_BAD_GATEWAY:
            self._answer(502, b"<html>", 6)
        elif trouble is Trouble.DONE_AND_CUT:
            self._answer(200, content[: len(content) // 2], len(content))
            self._hang_up()
        else:
            self._answer(200, content, len(content))

    def _ask(self, body: bytes) -> bytes:
        headers = {"Content-Type": "application/json"}
        answer = self.proxy.client.post(self.proxy.node_url, content=body, headers=headers)
        return json.dumps(self.proxy.changed(parse_json(body), answer.json())).encode()

    def _answer(self, status: int, body: bytes, length: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
