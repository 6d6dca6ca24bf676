"""The network path of one process: a loopback relay that can be slow, cut, silent or wrong.

The process knows the relay's address only. All relays of a network share a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from api.http.server import stop_accepting

_CHUNK_BYTES = 1 << 16
_MOST_HEAD_BYTES = 1 << 16
_WRONG = b"<html>\x00 this is no JSON \xff"


class LinkCondition(StrEnum):
    WHOLE = "whole"
    SLOW = "slow"
    """Each piece of an answer waits."""
    CUT = "cut"
    """Connections are reset, and none is taken."""
    SILENT = "silent"
    """Connections are taken and nothing ever comes: packets are lost."""
    WRONG = "wrong"
    """Servers answer, in turn, 502 and what is no JSON."""


@dataclass
class Relay:
    target: int
    port: int = 0
    condition: LinkCondition = LinkCondition.WHOLE
    delay_seconds: float = 0.5
    _connections: set[asyncio.Task[None]] = field(default_factory=set)
    _faults: itertools.count[int] = field(default_factory=itertools.count)
    _server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._taken, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def turn(self, condition: LinkCondition, delay_seconds: float) -> None:
        self.condition, self.delay_seconds = condition, delay_seconds
        if condition in {LinkCondition.CUT, LinkCondition.SILENT, LinkCondition.WRONG}:
            await self._drop()

    async def close(self) -> None:
        if self._server is not None:
            await stop_accepting(self._server)
        await self._drop()
        await asyncio.sleep(0)  # in which transports close their sockets

    async def _drop(self) -> None:
        open_now = [one for one in self._connections if one is not asyncio.current_task()]
        for connection in open_now:
            connection.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)

    async def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection is served by a task"
        self._connections.add(task)
        try:
            await self._served(reader, writer)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # either end may disconnect at any time, and a cut path drops both
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.condition is LinkCondition.CUT:
            return
        if self.condition is LinkCondition.SILENT:
            while await reader.read(_CHUNK_BYTES):
                pass
            return
        if self.condition is LinkCondition.WRONG:
            await _answer_wrongly(reader, writer, next(self._faults))
            return
        there, back = await asyncio.open_connection("127.0.0.1", self.target)
        try:
            asked = self._moved(reader, back, delays=False)
            answered = self._moved(there, writer, delays=True)
            tasks = [asyncio.ensure_future(way) for way in (asked, answered)]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            back.transport.abort()

    async def _moved(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, delays: bool
    ) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            if delays and self.condition is LinkCondition.SLOW:
                await asyncio.sleep(self.delay_seconds)
            writer.write(data)
            await writer.drain()


async def _answer_wrongly(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
) -> None:
    """Read a request to its end and answer it as a broken server would."""
    head = await reader.readuntil(b"\r\n\r\n")
    if len(head) > _MOST_HEAD_BYTES:
        return
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    await reader.readexactly(min(length, 1 << 24))
    status = b"502 Bad Gateway" if number % 2 == 0 else b"200 OK"
    writer.write(
        b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
        b"Connection: close\r\n\r\n%s" % (status, len(_WRONG), _WRONG)
    )
    await writer.drain()


class Relays:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relays", daemon=True)
        self._thread.start()
        self._open: list[Relay] = []

    def relay(self, target: int) -> Relay:
        relay = Relay(target)
        self._carry_out(relay.open())
        self._open.append(relay)
        return relay

    def turn(self, relay: Relay, condition: LinkCondition, delay_seconds: float = 0.5) -> None:
        self._carry_out(relay.turn(condition, delay_seconds))

    def close(self) -> None:
        for relay in self._open:
            self._carry_out(relay.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _carry_out(self, work: Coroutine[Any, Any, None]) -> None:
        future: Future[None] = asyncio.run_coroutine_threadsafe(work, self._loop)
        with contextlib.suppress(asyncio.CancelledError):
            future.result(timeout=30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
