"""The service under uvicorn, for the command line and for tests."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import uvicorn

from api.app import create_app
from api.http.graceful_server import GracefulServer
from api.sockets import MAX_CONCURRENT, MAX_HEADER_BYTES, listening_socket, url_of
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from api.http.streams import Streams
    from api.settings import Settings


def serve(
    settings: Settings, host: str, port: int, on_listening: Callable[[str], None] | None = None
) -> None:
    """Serve until the process is stopped.

    The home must exist, its chain need not: /ready answers 503 until a run has made one.

    Args:
        settings: of the service.
        host: name or address to listen on.
        port: 0 takes a free one.
        on_listening: called with the service's URL once connections are accepted.

    Raises:
        ConfigurationError: there is no such home, or the address cannot be listened on.
    """
    if not settings.home.is_dir():
        raise ConfigurationError(f"there is no home at {settings.home}")
    with listening_socket(host, port) as listener:
        hosts = (*settings.allowed_hosts, host)
        server = server_for(settings.model_copy(update={"allowed_hosts": hosts}))
        # A signal ends the server in order, from here on, and is then raised once more.
        with contextlib.suppress(KeyboardInterrupt), server.capture_signals():
            if on_listening is not None:
                on_listening(url_of(listener))
            server.run(sockets=[listener])


def server_for(settings: Settings) -> uvicorn.Server:
    """Return a server that has not started yet, with limits on the resources of a client."""
    app = create_app(settings)
    return _Server(
        uvicorn.Config(
            app,
            ws="none",
            http="h11",
            log_level="warning",
            server_header=False,
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=[str(network) for network in settings.trusted_proxies],
            limit_concurrency=MAX_CONCURRENT,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            timeout_graceful_shutdown=5,
        ),
        app.state.streams,
    )


class _Server(GracefulServer):
    """Ends streams at shutdown, instead of waiting for readers that never leave."""

    def __init__(self, config: uvicorn.Config, streams: Streams) -> None:
        super().__init__(config)
        self._streams = streams

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and end the open ones in order."""
        self._streams.are_ending = True
        await super().shutdown(sockets)
