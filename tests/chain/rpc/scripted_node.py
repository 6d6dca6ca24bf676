"""A node that says what a test tells it to say, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self

from ledger.chain.rpc.wire import UNKNOWN_METHOD

BLOCK = {
    "number": "0x0",
    "hash": "0x" + "0a" * 32,
    "parentHash": "0x" + "00" * 32,
    "timestamp": "0x1",
    "baseFeePerGas": "0x7",
}


class ScriptedNode:
    """Answers each method with a JSON value, an error, raw bytes, or what a function returns."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {
            "eth_chainId": "0x7",
            "eth_getBlockByNumber": BLOCK,
            "eth_getCode": "0x",
            **answers,
        }
        self.headers: dict[str, str] = {}
        self.asked: list[tuple[str, list[Any]]] = []
        handler = type("Handler", (_Handler,), {"node": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, request: dict[str, Any]) -> tuple[int, bytes]:
        method, parameters = request["method"], request["params"]
        self.asked.append((method, parameters))
        unknown = Fault(UNKNOWN_METHOD, "no such method")
        found = self.answers.get(method, unknown)
        if callable(found):
            found = found(*parameters)
        if isinstance(found, Raw):
            return found.status, found.body
        envelope = {"jsonrpc": "2.0", "id": request["id"]}
        if isinstance(found, Fault):
            return 200, json.dumps({**envelope, "error": found.error}).encode()
        return 200, json.dumps({**envelope, "result": found}).encode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class Fault:
    """An error as answer."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        self.error = {"code": code, "message": message, "data": data}


class Raw:
    """A whole HTTP body as answer."""

    def __init__(self, body: bytes, status: int = 200) -> None:
        self.body = body
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    node: ClassVar[ScriptedNode]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    log_message: Callable[..., None] = lambda *_: None

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, body = self.node.answer(request)
        self.send_response(status)
        self.send_header("Location", "http://127.0.0.1:9/elsewhere")
        self.send_header("Content-Length", str(len(body)))
        for name, value in self.node.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
