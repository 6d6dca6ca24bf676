"""The embedded chain over HTTP, on loopback only, for several processes.

One process owns the chain file and serves it; workers use it as they use any node. The server signs
nothing and has no accounts. Requests that a web page can make a browser send are refused, requests
and batches are bounded, and stalled clients are dropped. A block is mined for each transaction, or
periodically for all pending ones, so that no client can shorten windows and deadlines, which count
blocks, by sending many transactions.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.rpc import wire
from ledger.chain.rpc.methods import RpcMethods, fault_json
from ledger.chain.rpc.pool import TransactionPool
from ledger.io.parsing import parse_json, refuse_constant
from ledger.protocol.errors import ChainError

LOOPBACK = "127.0.0.1"
MOST_REQUEST_BYTES = 2 * 2**20
MOST_REQUESTS_IN_A_BATCH = 100
# Limit of a batch's answers; requests beyond it are refused, not carried out.
MOST_BATCH_BYTES = 32 * 2**20


class RpcServer(AbstractContextManager["RpcServer"]):
    """A server that runs until it is closed; the caller closes the chain. Port 0 is a free one."""

    def __init__(
        self,
        chain: EmbeddedReader,
        port: int = 0,
        max_logs: int = 10_000,
        block_seconds: float | None = None,
    ) -> None:
        if block_seconds is not None and not block_seconds > 0:
            raise ValueError(f"blocks cannot come every {block_seconds} s")
        self._pool: TransactionPool | None = None
        if block_seconds is not None:
            if not isinstance(chain, EmbeddedChain):
                raise TypeError("a chain that was opened for reading gets no blocks")
            self._pool = TransactionPool(chain)
        served = {"chain": chain, "methods": RpcMethods(chain, max_logs, self._pool)}
        handler = type("Handler", (_Handler,), served)
        try:
            self._server = _Server((LOOPBACK, port), handler)
        except (OSError, OverflowError) as error:
            raise ChainError(f"{LOOPBACK}:{port}: cannot listen here ({error})") from error
        self.url = f"http://{LOOPBACK}:{self._server.server_address[1]}"
        self._failure: ChainError | None = None
        self._closed = threading.Event()
        self._threads = [_started("rpc-server", self._server.serve_forever, 0.05)]
        if self._pool is not None and block_seconds is not None:
            self._threads.append(_started("rpc-miner", self._mine, self._pool, block_seconds))

    def wait(self) -> None:
        """Wait until the server is closed; raise the error that stopped it from making blocks."""
        for thread in self._threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _mine(self, pool: TransactionPool, seconds: float) -> None:
        due = time.monotonic() + seconds
        try:
            while not self._closed.wait(max(0.0, due - time.monotonic())):
                pool.mine()
                # A missed period is not made up for: blocks never come faster than configured.
                due = max(due + seconds, time.monotonic())
        except ChainError as error:
            self._failure = error
            self._server.shutdown()

    def close(self) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        for thread in self._threads:
            thread.join()

    def __exit__(self, *_: object) -> None:
        self.close()


def _started(name: str, target: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, name=name, daemon=True)
    thread.start()
    return thread


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Beyond this backlog the system resets connections; the default is 5.
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a disconnected client is no error
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    chain: ClassVar[EmbeddedReader]
    methods: ClassVar[RpcMethods]
    protocol_version = "HTTP/1.1"
    # Without these two an answer waits some 200 ms for the client's ACK.
    disable_nagle_algorithm = True
    wbufsize = -1
    timeout = 60

    def do_GET(self) -> None:
        """Answer monitors: /health, and /metrics in the text format of Prometheus."""
        block = f"# TYPE cmfl_chain_block gauge\ncmfl_chain_block {self.chain.head().number}\n"
        page = {"/health": "ok\n", "/metrics": block}.get(self.path)
        status = HTTPStatus.OK if page else HTTPStatus.NOT_FOUND
        if self._refusal() is HTTPStatus.FORBIDDEN:
            page, status = None, HTTPStatus.FORBIDDEN
        self._send(status, (page or status.phrase).encode(), "text/plain; charset=utf-8")

    def do_POST(self) -> None:
        refusal = self._refusal()
        if refusal is not None:
            self.close_connection = True  # the body is left unread
            self._send(refusal, _encoded({"error": refusal.phrase}))
            return
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            request = parse_json(body, refuse_constant)
        except ValueError:
            self._send(HTTPStatus.BAD_REQUEST, _encoded(fault_json(wire.NOT_JSON, "not JSON")))
            return
        answer = self._answer(request)
        self._send(HTTPStatus.NO_CONTENT if answer is None else HTTPStatus.OK, answer)

    def _refusal(self) -> HTTPStatus | None:
        length = self.headers.get("Content-Length", "")
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        # A browser sends the Origin of a page; DNS rebinding shows in Host. A wallet extension is
        # not a page: its Origin has its own scheme.
        origin = self.headers.get("Origin", "").partition(":")[0]
        page = "Origin" in self.headers and not origin.endswith("-extension")
        if page or host not in {LOOPBACK, "localhost"}:
            return HTTPStatus.FORBIDDEN
        if self.headers.get_content_type() != "application/json":
            return HTTPStatus.UNSUPPORTED_MEDIA_TYPE
        if not (length.isascii() and length.isdigit()):
            return HTTPStatus.LENGTH_REQUIRED
        if len(length) > 10 or int(length) > MOST_REQUEST_BYTES:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        return None

    def _answer(self, request: object) -> bytes | None:
        if not isinstance(request, list):
            answer = self.methods.answer(request)
            return None if answer is None else _encoded(answer)
        if not 0 < len(request) <= MOST_REQUESTS_IN_A_BATCH:
            fact = f"a batch holds 1 to {MOST_REQUESTS_IN_A_BATCH} requests"
            return _encoded(fault_json(wire.INVALID_REQUEST, fact))
        # Encoded one by one: a hundred long answers would be gigabytes of objects.
        answers: list[bytes] = []
        room = MOST_BATCH_BYTES
        for each in request:
            answer = self.methods.answer(each) if room > 0 else _not_answered(each)
            if answer is not None:
                answers.append(_encoded(answer))
                room -= len(answers[-1])
        return b"[" + b",".join(answers) + b"]" if answers else None

    def _send(
        self, status: HTTPStatus, answer: bytes | None, kind: str = "application/json"
    ) -> None:
        self.send_response(status)
        body = b"" if answer is None else answer
        if answer is not None:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its interface
        """Write nothing: the chain itself is the record."""


def _encoded(answer: object) -> bytes:
    return json.dumps(answer, separators=(",", ":")).encode()


def _not_answered(request: object) -> dict[str, Any] | None:
    """Return the answer to a request beyond a batch's size limit; None for a notification."""
    if not isinstance(request, dict) or "id" not in request:
        return None
    identifier = request["id"] if type(request["id"]) in {int, str} else None
    message = f"the answers to this batch are over {MOST_BATCH_BYTES} bytes"
    return fault_json(wire.LIMIT_EXCEEDED, message, identifier)
