"""A uvicorn server that leaves no connection open."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from ledger.io.closing_servers import stop_accepting


class GracefulServer(uvicorn.Server):
    """Aborts the connections that the grace period leaves open.

    uvicorn cancels their tasks and forgets them: a peer that sends half a request, or does not read
    its answer, would then wait until the process ends.

    Args:
        config: of the server; what it names is imported at once, since the command line ends at
            once on Ctrl-C, with 130, while a module is being imported.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        config.load()
        config.get_loop_factory()
        super().__init__(config)

    @contextmanager
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
        for server in self.servers:
            await stop_accepting(server)
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        # A transport closes its socket in the next iteration of the event loop.
        await asyncio.sleep(0)
