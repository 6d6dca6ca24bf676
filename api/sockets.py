"""Listening sockets, without imports of a server."""

from __future__ import annotations

import socket

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
