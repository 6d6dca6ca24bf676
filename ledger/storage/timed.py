"""A file system of fsspec that is asked in bounded time, where it works on an event loop.

Buckets do. Their time-outs are for one wait each, and what their host says of a file's size is
believed: one that drips a byte now and then would hold a worker for ever, and one that sends more
than it said would fill its memory. So each act has a deadline, and a file is taken in pieces.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

ACT_SECONDS = 60.0
"""For a listing, a question, or a removal; to write, beyond the time that the bytes need."""

GRACE_SECONDS = 20.0
"""To read, beyond the time that the bytes need."""

LEAST_BYTES_PER_SECOND = 65_536
_PIECE = 1 << 20


class TimedFiles:
    """Asks a file system; whatever that raises is passed on, a time-out among it.

    Args:
        files: of fsspec.
    """

    def __init__(self, files: Any) -> None:
        from fsspec.asyn import AsyncFileSystem  # noqa: PLC0415 - an extra

        self._files = files
        self._is_timed = isinstance(files, AsyncFileSystem)
        self._is_streamed = (
            self._is_timed and type(files).open_async is not AsyncFileSystem.open_async
        )

    def ask(self, act: str, *arguments: object, size: int = 0, **options: object) -> Any:
        """Return what a method of the file system returns.

        Args:
            act: its name.
            arguments: of it.
            size: bytes that it moves.
            options: of it.
        """
        if not self._is_timed:
            return getattr(self._files, act)(*arguments, **options)
        from fsspec.asyn import sync  # noqa: PLC0415 - an extra

        seconds = ACT_SECONDS + size / LEAST_BYTES_PER_SECOND
        method = getattr(self._files, f"_{act}")
        return sync(self._files.loop, method, *arguments, timeout=seconds, **options)

    def read(self, path: str, most: int) -> bytes:
        """Return the first bytes of a file.

        Args:
            path: of the file.
            most: how many at most.
        """
        if not self._is_streamed:
            with self._files.open(path, "rb", cache_type="none") as file:
                return bytes(file.read(most))
        from fsspec.asyn import sync  # noqa: PLC0415 - an extra

        return bytes(sync(self._files.loop, self._streamed, path, most))

    async def _streamed(self, path: str, most: int) -> bytearray:
        came, begun = bytearray(), time.monotonic()
        file = await self._files.open_async(path, "rb")
        try:
            while len(came) < most:
                end = begun + GRACE_SECONDS + len(came) / LEAST_BYTES_PER_SECOND
                async with asyncio.timeout(end - time.monotonic()):
                    piece = await file.read(min(_PIECE, most - len(came)))
                if not piece:
                    break
                came += piece
        finally:
            # Of a bucket's object the connection stays open else until all has come.
            body = getattr(file, "r", None)
            if body is not None:
                body.close()
        return came
