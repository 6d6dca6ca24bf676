"""A server that ends leaves no connection open, whatever its peer does with it."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import time
from typing import TYPE_CHECKING

from uvicorn.protocols.http.h11_impl import H11Protocol

from api.sockets import listening_socket, url_of
from api.store.serve_store import server_for
from api.store.store_settings import StoreSettings
from ledger.storage.blobs import FolderBlobs
from tests.api.served import hurried
from tests.api.store.conftest import path_of
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.api.store.conftest import Contract

DATA = bytes(16_000_000)
"""More than the operating system takes for a peer that does not read."""


def is_paused(connection: object) -> bool:
    """Return whether a connection waits for its peer to read."""
    return isinstance(connection, H11Protocol) and connection.flow.write_paused


def test_an_answer_that_nobody_reads_is_cut_off(tmp_path: Path, contract: Contract) -> None:
    FolderBlobs(tmp_path).put(DATA)
    with listening_socket("127.0.0.1", 0) as listener:
        address = listener.getsockname()
        settings = StoreSettings(folder=tmp_path, public_urls=(url_of(listener),))
        server = server_for(settings, contract.ledger)
        server.config.timeout_graceful_shutdown = 0
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        with socket.create_connection(address, timeout=PATIENCE_SECONDS) as peer:
            peer.sendall(f"GET {path_of(DATA)} HTTP/1.1\r\nHost:\r\n\r\n".encode())
            assert peer.recv(12) == b"HTTP/1.1 200"
            while not any(map(is_paused, server.server_state.connections)):
                assert thread.is_alive()
                time.sleep(0.005)
            server.should_exit = True
            thread.join()
            assert not server.server_state.connections


def test_connections_accepted_at_the_end_are_closed_too(tmp_path: Path, contract: Contract) -> None:
    async def end_while_accepting(listener: socket.socket, iterations: int) -> None:
        settings = StoreSettings(folder=tmp_path, public_urls=(url_of(listener),))
        server = server_for(settings, contract.ledger)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0.005)
        peers = [socket.create_connection(listener.getsockname()) for _ in range(3)]
        for _ in range(iterations):
            await asyncio.sleep(0)
        await server.shutdown()
        for peer in peers:
            peer.close()
        server.should_exit = True
        await running

    for iterations in range(4):
        with listening_socket("127.0.0.1", 0) as listener, hurried():
            asyncio.run(end_while_accepting(listener, iterations))
    # Once for all of them, for it takes a second: pytest fails a test whose sockets were left open.
    gc.collect()
