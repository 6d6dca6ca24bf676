"""The embedded chain for several processes: JSON-RPC over HTTP, on loopback only.

One process owns the chain file and serves it; workers talk to it through `chain.py` as to any
node. It signs nothing and has no accounts. Requests that a web page could make a browser send are
refused, requests and batches are bounded, and clients that stall are dropped.
"""

from __future__ import annotations

import json
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ledger.chain.rpc import wire
from ledger.chain.rpc.methods import RpcMethods
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from types import TracebackType

    from ledger.chain.embedded.reader import EmbeddedReader

LOOPBACK = "127.0.0.1"
MOST_REQUEST_BYTES = 2 * 2**20
MOST_REQUESTS_IN_A_BATCH = 100
_LONGEST_LENGTH = 10


class RpcServer:
    """Serves a chain until closed; the chain itself stays the caller's to close.

    Args:
        chain: what to serve.
        port: where; 0 takes a free one.
        most_logs: how many logs one `eth_getLogs` may return.

    Attributes:
        url: where it listens.

    Raises:
        ChainError: the port is taken.
    """

    def __init__(self, chain: EmbeddedReader, port: int = 0, most_logs: int = 10_000) -> None:
        handler = type("Handler", (_Handler,), {"methods": RpcMethods(chain, most_logs)})
        try:
            self._server = _Server((LOOPBACK, port), handler)
        except (OSError, OverflowError) as error:
            raise ChainError(f"{LOOPBACK}:{port}: cannot listen here ({error})") from error
        self.url = f"http://{LOOPBACK}:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="rpc-server", daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Return once the server has been closed."""
        self._thread.join()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a client that went away is no news
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    methods: ClassVar[RpcMethods]
    protocol_version = "HTTP/1.1"
    # Without these two an answer waits some 200 ms for the client's acknowledgement.
    disable_nagle_algorithm = True
    wbufsize = -1
    timeout = 60

    def do_POST(self) -> None:
        """Answer one request or one batch."""
        refusal = self._refusal()
        if refusal is not None:
            self.close_connection = True  # the body is left unread
            self._send(refusal, {"error": refusal.phrase})
            return
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            request = json.loads(body)
        except (ValueError, RecursionError):
            self._send(HTTPStatus.BAD_REQUEST, _fault(-32700, "not JSON"))
            return
        self._send(HTTPStatus.OK, self._answer(request))

    def _refusal(self) -> HTTPStatus | None:
        length = self.headers.get("Content-Length", "")
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        # A browser sends an Origin, and a foreign name that was made to point here as Host.
        if "Origin" in self.headers or host not in {LOOPBACK, "localhost"}:
            return HTTPStatus.FORBIDDEN
        if self.headers.get_content_type() != "application/json":
            return HTTPStatus.UNSUPPORTED_MEDIA_TYPE
        if not (length.isascii() and length.isdigit()):
            return HTTPStatus.LENGTH_REQUIRED
        if len(length) > _LONGEST_LENGTH or int(length) > MOST_REQUEST_BYTES:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        return None

    def _answer(self, request: object) -> object:
        if not isinstance(request, list):
            return self.methods.answer(request)
        if not 0 < len(request) <= MOST_REQUESTS_IN_A_BATCH:
            return _fault(
                wire.INVALID_REQUEST, f"a batch holds 1 to {MOST_REQUESTS_IN_A_BATCH} requests"
            )
        return [self.methods.answer(one) for one in request]

    def _send(self, status: HTTPStatus, answer: object) -> None:
        body = json.dumps(answer, separators=(",", ":")).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its interface
        """Write nothing: the chain itself is the record."""


def _fault(code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
