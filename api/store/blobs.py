"""Blobs: anybody reads them, registered clients write them, nobody changes one."""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from anyio import CancelScope, CapacityLimiter, to_thread
from starlette.responses import Response, StreamingResponse

from api.http.encoded_answer import IMMUTABLE, is_known
from api.http.problems import BLOB_NOT_FOUND, ProblemError, problem
from api.store.charges import ChargeKind
from api.store.integrity import IntegrityCache
from api.store.problems import RANGE_UNSATISFIABLE
from api.store.ranges import ByteRange, parse_range
from ledger.io.home import open_file
from ledger.protocol import digest_patterns
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import BufferedReader
    from pathlib import Path

    from starlette.requests import Request

    from api.store.receiver import Receiver
    from ledger.storage.blobs import FolderBlobs

HASHED_AT_ONCE = 2
"""Blobs, for those who ask only whether they are there."""

_PIECE = 1 << 20
_NAME = re.compile(digest_patterns.BARE)


class BlobRoutes:
    """Answers for the blobs of a folder.

    Args:
        receiver: takes what clients send.
        blobs: of the folder.
        clock: seconds that only grow.
    """

    def __init__(self, receiver: Receiver, blobs: FolderBlobs, clock: Callable[[], float]) -> None:
        self._receiver = receiver
        self._blobs = blobs
        self._soundness = IntegrityCache(blobs, clock)
        # The other threads are for those who read.
        self._hashing = CapacityLimiter(HASHED_AT_ONCE)

    async def give(self, request: Request) -> Response:
        """Give a blob's bytes or some of them; who reads them compares them with their name.

        Args:
            request: with the name.

        Raises:
            ProblemError: there is no such blob, or what HEAD asks for is damaged.
            OSError: it cannot be read.
        """
        name = _named(request)
        headers = {
            "ETag": f'"{name}"',
            "Cache-Control": IMMUTABLE,
            "Accept-Ranges": "bytes",
            "X-Content-Type-Options": "nosniff",
            "Content-Disposition": f'attachment; filename="{name}"',
        }
        stack = ExitStack()
        try:
            file = await to_thread.run_sync(stack.enter_context, open_file(self._path(name)))
        except FileNotFoundError:
            raise ProblemError(BLOB_NOT_FOUND, f"{name} is not here") from None
        size = os.fstat(file.fileno()).st_size
        try:
            if is_known(request.headers.get("if-none-match"), headers["ETag"]):
                return Response(status_code=304, headers=headers)
            found = parse_range(_range_header(request, headers["ETag"]), size)
            whole = ByteRange(0, size)
            part = whole if found is None else found
            headers["Content-Length"] = str(part.size)
            if found is not None:
                headers["Content-Range"] = f"bytes {part.first}-{part.end - 1}/{size}"
            status = 200 if found is None else 206
            if request.method == "HEAD":
                # Who asks only whether it is there would not bring a damaged one again.
                digest = Digest(bytes.fromhex(name))
                is_whole = partial(self._soundness.is_whole, digest, size)
                if not await to_thread.run_sync(is_whole, limiter=self._hashing):
                    raise ProblemError(BLOB_NOT_FOUND, f"{name} is damaged here")
                return Response(
                    status_code=status, headers=headers, media_type="application/octet-stream"
                )
            file.seek(part.first)
            sent = _pieces(stack.pop_all(), file, part.size)
            return StreamingResponse(sent, status, headers, "application/octet-stream")
        except ValueError as error:
            answer = problem(request, RANGE_UNSATISFIABLE, str(error))
            answer.headers["Content-Range"] = f"bytes */{size}"
            return answer
        finally:
            stack.close()

    async def take(self, request: Request) -> Response:
        """Keep a blob: 201 once it is durable, 200 if it was there.

        Args:
            request: with the name, a client's signature and the bytes.

        Raises:
            ProblemError: it is not to be kept.
            ChainError: who may write cannot be told.
            OSError: it cannot be written; nothing is left.
        """
        name = _named(request)
        digest = Digest(bytes.fromhex(name))
        receiver, settings = self._receiver, self._receiver.settings
        upload, _ = await to_thread.run_sync(
            receiver.signed, request, digest, settings.max_blob_bytes
        )
        if await to_thread.run_sync(self._soundness.is_whole, digest, upload.size):
            await to_thread.run_sync(receiver.charges.note, upload, ChargeKind.BLOB)
            await receiver.pass_over(request, upload)
            return Response(status_code=200, headers=_KEPT)
        most = settings.quota_blobs, settings.quota_bytes
        await to_thread.run_sync(receiver.charge, upload, ChargeKind.BLOB, most)
        is_kept = False
        try:
            await receiver.keep(request, upload, self._path(name))
            is_kept = True
        finally:
            settle = partial(receiver.charges.settle, upload, ChargeKind.BLOB, is_kept=is_kept)
            # A server that is told to stop cancels who is still sending.
            with CancelScope(shield=True):
                await to_thread.run_sync(settle)
        return Response(status_code=201, headers=_KEPT)

    def _path(self, name: str) -> Path:
        return self._blobs.folder / name[:2] / name


_KEPT = {"Cache-Control": "no-store"}


def _named(request: Request) -> str:
    """Return the digest that a path names, in hex.

    Raises:
        ProblemError: it names none.
    """
    name = str(request.path_params["digest"])
    if not _NAME.fullmatch(name) or request.path_params["prefix"] != name[:2]:
        raise ProblemError(
            BLOB_NOT_FOUND, "a blob's path is its sha256 behind its first two digits"
        )
    return name


def _range_header(request: Request, etag: str) -> str | None:
    """Return the range that is asked for, None if it is asked for of another version."""
    known = request.headers.get("if-range")
    return None if known not in {None, etag} else request.headers.get("range")


def _pieces(stack: ExitStack, file: BufferedReader, size: int) -> Iterator[bytes]:
    """Yield so many bytes of a file, and close it at their end or when nobody takes them."""
    with stack:
        left = size
        while left and (piece := file.read(min(_PIECE, left))):
            left -= len(piece)
            yield piece
