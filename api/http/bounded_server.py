"""An ASGI app under uvicorn, with bounds on connections and headers."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Collection
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from api.http.graceful_server import GracefulServer
from api.http.middleware import HostCheck
from api.sockets import MAX_CONCURRENT, MAX_HEADER_BYTES, listening_socket, url_of


def bounded_server(app: ASGIApp, allowed_hosts: Collection[str] = ()) -> GracefulServer:
    """Return a server that has not started."""
    return GracefulServer(bounded(HostCheck(app, allowed_hosts), proxy_headers=False))


def bounded(app: ASGIApp, **proxies: Any) -> uvicorn.Config:
    """Return the bounds of a server, with uvicorn's options for proxies."""
    return uvicorn.Config(
        app,
        ws="none",
        http="h11",
        log_level="warning",
        server_header=False,
        limit_concurrency=MAX_CONCURRENT,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_graceful_shutdown=5,
        **proxies,
    )


def run_server(
    server: uvicorn.Server, listener: socket.socket, on_listening: Callable[[str], None] | None
) -> None:
    """Answer requests until the process is stopped."""
    # A signal ends the server in order, from here on, and is then raised once more.
    with contextlib.suppress(KeyboardInterrupt), server.capture_signals():
        if on_listening is not None:
            on_listening(url_of(listener))
        server.run(sockets=[listener])


def serve_app(
    app: ASGIApp,
    host: str,
    port: int,
    on_listening: Callable[[str], None],
    allowed_hosts: Collection[str] = (),
) -> None:
    """Answer requests until the process is stopped.

    Args:
        port: 0 takes a free one.
        allowed_hosts: names that a `Host` header may have, besides `host`, addresses and localhost.
    """
    with listening_socket(host, port) as listener:
        run_server(bounded_server(app, {host, *allowed_hosts}), listener, on_listening)
