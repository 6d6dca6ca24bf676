"""Whatever a server had accepted when it was closed has a protocol, which can end it."""

from __future__ import annotations

import asyncio
import gc
import socket

from ledger.io.closing_servers import stop_accepting


async def accepted_before_the_end(iterations: int) -> list[asyncio.BaseTransport]:
    """Return the connections of a server that is closed some iterations after clients connect."""
    made: list[asyncio.BaseTransport] = []

    class Connection(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.append(transport)

    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    clients = [socket.create_connection(address) for _ in range(3)]
    for _ in range(iterations):
        await asyncio.sleep(0)
    await stop_accepting(server)
    for transport in made:
        transport.close()
    await asyncio.sleep(0)
    for client in clients:
        client.close()
    return made


def test_a_closed_server_leaves_no_accepted_connection_behind() -> None:
    for iterations in range(5):
        made = asyncio.run(accepted_before_the_end(iterations))
        assert len(made) in {0, 3}, iterations
    # Once for all of them, for it takes a second: pytest fails a test whose sockets were left open.
    gc.collect()


def test_a_server_can_be_closed_twice() -> None:
    async def closed_twice() -> bool:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        await stop_accepting(server)
        await stop_accepting(server)
        return server.is_serving()

    assert not asyncio.run(closed_twice())
