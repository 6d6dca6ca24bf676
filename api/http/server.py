"""A listening socket, and an ASGI app under uvicorn, with bounds, which ends its streams."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Collection, Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from api.http.limits import HostCheck
from ledger.protocol.errors import ConfigurationError

MAX_CONCURRENT = 512
MAX_HEADER_BYTES = 16_384


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one."""
    if not 0 <= port <= 65_535:  # the resolver would take it modulo 2**16
        raise ConfigurationError(f"port {port} is not in [0, 65535]")
    try:
        resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = resolved[0]
        # With the protocol named, asyncio turns Nagle's algorithm off: 40 ms less per answer.
        listener = socket.socket(family, kind, protocol)
    except (OSError, OverflowError, UnicodeError) as error:
        raise ConfigurationError(f"cannot listen on {host} port {port}: {error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(MAX_CONCURRENT)
    except (OSError, OverflowError) as error:
        listener.close()
        raise ConfigurationError(f"cannot listen on {host} port {port}: {error}") from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class GracefulServer(uvicorn.Server):
    """Aborts the connections that the grace period leaves open.

    uvicorn cancels their tasks and forgets them: a peer that sends half a request, or does not read
    its answer, would then wait until the process ends. `on_shutdown` is called before.
    """

    def __init__(
        self, config: uvicorn.Config, on_shutdown: Callable[[], None] = lambda: None
    ) -> None:
        config.load()  # at once: an interrupted import ends the command line with 130
        config.get_loop_factory()
        super().__init__(config)
        self._on_shutdown = on_shutdown

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End in order by HUP, as by Ctrl-C and TERM; an ignored HUP stays ignored."""
        with super().capture_signals():
            is_main = threading.current_thread() is threading.main_thread()
            if not is_main or signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
                yield
                return
            before = signal.signal(signal.SIGHUP, self.handle_exit)
            try:
                yield
            finally:
                signal.signal(signal.SIGHUP, before)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, end the open ones in order, and abort the rest."""
        self._on_shutdown()
        for server in self.servers:
            await stop_accepting(server)
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        # A transport closes its socket in the next iteration of the event loop.
        await asyncio.sleep(0)


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
    """Answer requests until the process is stopped; see `listening_socket` and `HostCheck`."""
    with listening_socket(host, port) as listener:
        run_server(bounded_server(app, {host, *allowed_hosts}), listener, on_listening)


async def stop_accepting(server: asyncio.Server) -> None:
    """Close a server once each accepted connection has a transport; before, its socket leaks."""
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    for _ in range(10):
        await asyncio.sleep(0)
    server.close()
