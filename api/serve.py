"""The service under uvicorn, for the command line and for tests."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from api.app import create_app
from api.http.server import GracefulServer, bounded, listening_socket, run_server
from api.http.streams import Streams
from api.settings import Settings
from ledger.protocol.errors import ConfigurationError


def serve(
    settings: Settings, host: str, port: int, on_listening: Callable[[str], None] | None = None
) -> None:
    """Serve until the process is stopped.

    The home must exist, its chain need not: /ready answers 503 until a run has made one.

    Args:
        port: 0 takes a free one.
    """
    if not settings.home.is_dir():
        raise ConfigurationError(f"there is no home at {settings.home}")
    with listening_socket(host, port) as listener:
        hosts = (*settings.allowed_hosts, host)
        server = server_for(settings.model_copy(update={"allowed_hosts": hosts}))
        run_server(server, listener, on_listening)


def server_for(settings: Settings) -> uvicorn.Server:
    """Return a server that has not started yet, with limits on the resources of a client."""
    app = create_app(settings)
    proxies = [str(network) for network in settings.trusted_proxies]
    config = bounded(app, proxy_headers=bool(proxies), forwarded_allow_ips=proxies)
    return _Server(config, app.state.streams)


class _Server(GracefulServer):
    """Ends streams at shutdown, instead of waiting for readers that never leave."""

    def __init__(self, config: uvicorn.Config, streams: Streams) -> None:
        super().__init__(config)
        self._streams = streams

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and end the open ones in order."""
        self._streams.are_ending = True
        await super().shutdown(sockets)
