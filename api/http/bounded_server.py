"""An ASGI app under uvicorn, with bounds on connections and headers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import uvicorn

from api.http.graceful_server import GracefulServer
from api.sockets import MAX_CONCURRENT, MAX_HEADER_BYTES, listening_socket, url_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp


def bounded_server(app: ASGIApp) -> GracefulServer:
    """Return a server that has not started."""
    return GracefulServer(
        uvicorn.Config(
            app,
            ws="none",
            http="h11",
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MAX_CONCURRENT,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            timeout_graceful_shutdown=5,
        )
    )


def serve_app(app: ASGIApp, host: str, port: int, on_listening: Callable[[str], None]) -> None:
    """Answer requests until the process is stopped.

    Args:
        app: to serve.
        host: name or address to listen on.
        port: 0 takes a free one.
        on_listening: called with the URL once connections are accepted.

    Raises:
        ConfigurationError: the address cannot be listened on.
    """
    with listening_socket(host, port) as listener:
        server = bounded_server(app)
        # A signal ends the server in order, from here on, and is then raised once more.
        with contextlib.suppress(KeyboardInterrupt), server.capture_signals():
            on_listening(url_of(listener))
            server.run(sockets=[listener])
