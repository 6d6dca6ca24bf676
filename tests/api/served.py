"""A server of this package in a thread of the tests, which ends as soon as it is told to."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any
from unittest.mock import patch

import uvicorn.server


class _Hurried(ModuleType):
    """asyncio, as uvicorn's server sees it: its pauses take a tenth.

    It looks every 0.1 s whether it shall end, then lets 0.1 s go by, then looks every 0.1 s whether
    its connections have ended: hundreds of servers would wait for most of a minute.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    @staticmethod
    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / 10)


def hurried() -> AbstractContextManager[object]:
    return patch.object(uvicorn.server, "asyncio", _Hurried("asyncio"))


@contextmanager
def in_a_thread(server: uvicorn.Server, listener: socket.socket) -> Iterator[None]:
    """Let a server serve until the end of the block, and then end in order."""
    with hurried():
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive(), "the server did not start"
                time.sleep(0.005)
            yield
        finally:
            server.should_exit = True
            thread.join()
