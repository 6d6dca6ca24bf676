"""A reverse proxy that serves a service below a path, and removes the path from requests."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx

_PIECE = 65_536
_OWN = {"connection", "keep-alive", "transfer-encoding", "date", "server"}


@contextmanager
def proxied(service: httpx.Client, root_path: str) -> Iterator[str]:
    """Yield the proxy's URL of a service, without a slash at its end."""
    port = service.base_url.port or 80

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self.path.startswith(f"{root_path}/"):
                self.send_error(404, "not below the path")
                return
            size = int(self.headers.get("Content-Length", "0"))
            upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            try:
                headers = {n: v for n, v in self.headers.items() if n.lower() != "connection"}
                path = self.path.removeprefix(root_path)
                upstream.request(self.command, path, self.rfile.read(size), headers)
                answer = upstream.getresponse()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in _OWN:
                        self.send_header(name, value)
                self.end_headers()  # in HTTP/1.0 the end of the connection ends the body
                while piece := answer.read1(_PIECE):
                    self.wfile.write(piece)
            except OSError:
                pass  # either end has gone
            finally:
                upstream.close()

        do_HEAD = do_POST = do_DELETE = do_GET  # noqa: N815 - the names that the base calls

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}{root_path}"
        finally:
            server.shutdown()
            thread.join()
