"""The end of a listening asyncio server that leaves none of its connections behind."""

from __future__ import annotations

import asyncio

_ACCEPT_ITERATIONS = 10


async def stop_accepting(server: asyncio.Server) -> None:
    """Close a server, once each connection that it has accepted has its transport and its protocol.

    asyncio makes them in the event loop's next iterations. For a server closed before that it fails
    to, and leaves the socket open.

    Args:
        server: may be closed already.
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    for _ in range(_ACCEPT_ITERATIONS):
        await asyncio.sleep(0)
    server.close()
