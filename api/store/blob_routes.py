"""Blobs of a store: anyone reads, registered clients write, and no blob changes."""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from anyio import CancelScope, CapacityLimiter, to_thread
from starlette.responses import Response, StreamingResponse

from api.http.encoded_answer import IMMUTABLE, is_known
from api.http.problems import BLOB_NOT_FOUND, ProblemError, ProblemKind, problem
from api.store.charges import ChargeKind
from api.store.integrity import IntegrityCache
from ledger.io.home import open_file
from ledger.protocol import digest_patterns
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import BufferedReader

    from starlette.requests import Request

    from api.store.receiver import Receiver
    from ledger.storage.blobs import FolderBlobs

RANGE_UNSATISFIABLE = ProblemKind("range-unsatisfiable", 416, "The blob has no such range")

HASHED_AT_ONCE = 2
"""Blobs that are hashed at once for HEAD; the other threads serve readers."""

_PIECE = 1 << 20
_NAME = re.compile(digest_patterns.BARE)
_RANGE = re.compile(r"bytes=([0-9]{0,19})-([0-9]{0,19})")
_NO_STORE = {"Cache-Control": "no-store"}


class BlobRoutes:
    """Routes of a folder's blobs.

    Args:
        receiver: of uploads.
        blobs: of the folder.
        clock: seconds that only grow.
    """

    def __init__(self, receiver: Receiver, blobs: FolderBlobs, clock: Callable[[], float]) -> None:
        self._receiver = receiver
        self._blobs = blobs
        self._integrity = IntegrityCache(blobs, clock)
        self._hashing = CapacityLimiter(HASHED_AT_ONCE)

    async def get(self, request: Request) -> Response:
        """Return a blob's bytes or a range of them, unverified: the reader has its name.

        Raises:
            ProblemError: there is no such blob, or HEAD asks for a damaged one.
            OSError: it cannot be read.
        """
        digest = _digest_of(request)
        name = digest.hex()
        headers = {
            "ETag": f'"{name}"',
            "Cache-Control": IMMUTABLE,
            "Accept-Ranges": "bytes",
            "X-Content-Type-Options": "nosniff",
            "Content-Disposition": f'attachment; filename="{name}"',
        }
        stack = ExitStack()
        try:
            path = self._blobs.path_of(digest)
            file = await to_thread.run_sync(stack.enter_context, open_file(path))
        except FileNotFoundError:
            raise ProblemError(BLOB_NOT_FOUND, f"{name} is not here") from None
        size = os.fstat(file.fileno()).st_size
        try:
            if is_known(request.headers.get("if-none-match"), headers["ETag"]):
                return Response(status_code=304, headers=headers)
            byte_range = parse_range(_range_header(request, headers["ETag"]), size)
            part = byte_range or ByteRange(0, size)
            headers["Content-Length"] = str(part.size)
            if byte_range is not None:
                headers["Content-Range"] = f"bytes {part.first}-{part.end - 1}/{size}"
            status = 200 if byte_range is None else 206
            if request.method == "HEAD":
                # A client that asks before it uploads would not replace a damaged blob.
                is_intact = partial(self._integrity.is_intact, digest, size)
                if not await to_thread.run_sync(is_intact, limiter=self._hashing):
                    raise ProblemError(BLOB_NOT_FOUND, f"{name} is damaged here")
                return Response(
                    status_code=status, headers=headers, media_type="application/octet-stream"
                )
            file.seek(part.first)
            pieces = _pieces(stack.pop_all(), file, part.size)
            return StreamingResponse(pieces, status, headers, "application/octet-stream")
        except ValueError as error:
            answer = problem(request, RANGE_UNSATISFIABLE, str(error))
            answer.headers["Content-Range"] = f"bytes */{size}"
            return answer
        finally:
            stack.close()

    async def put(self, request: Request) -> Response:
        """Store a blob: 201 once it is durable, 200 if it was there.

        Raises:
            ProblemError: the store refuses it.
            ChainError: the permissions are unknown.
            OSError: it cannot be written; no part of it stays.
        """
        digest = _digest_of(request)
        receiver, settings = self._receiver, self._receiver.settings
        upload, _ = await to_thread.run_sync(
            receiver.authorize, request, digest, settings.max_blob_bytes
        )
        if await to_thread.run_sync(self._integrity.is_intact, digest, upload.size):
            await to_thread.run_sync(receiver.charges.note, upload, ChargeKind.BLOB)
            await receiver.discard(request, upload)
            return Response(status_code=200, headers=_NO_STORE)
        quota = settings.quota_blobs, settings.quota_bytes
        await to_thread.run_sync(receiver.charge, upload, ChargeKind.BLOB, quota)
        is_stored = False
        try:
            await receiver.receive_file(request, upload, self._blobs.path_of(digest))
            is_stored = True
        finally:
            settle = partial(receiver.charges.settle, upload, ChargeKind.BLOB, is_stored=is_stored)
            # A server that stops cancels its transfers.
            with CancelScope(shield=True):
                await to_thread.run_sync(settle)
        return Response(status_code=201, headers=_NO_STORE)


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes from the first to the one before `end`."""

    first: int
    end: int

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self.end - self.first


def parse_range(header: str | None, size: int) -> ByteRange | None:
    """Return the one range that a request asks for (RFC 9110, section 14); None for the whole blob.

    Several ranges in one request are answered by the whole blob, as servers may.

    Args:
        header: `Range`, untrusted.
        size: of the blob.

    Raises:
        ValueError: the blob has no such bytes.
    """
    match = _RANGE.fullmatch(header.strip()) if header is not None else None
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        first, end = max(0, size - int(match[2])), size
    else:
        first, end = int(match[1]), min(size, int(match[2]) + 1) if match[2] else size
        if match[2] and int(match[2]) < first:
            return None  # not a range at all: it is ignored
    if first >= end:
        raise ValueError(f"a blob of {size} bytes has none of these")
    return ByteRange(first, end)


def _digest_of(request: Request) -> Digest:
    name = str(request.path_params["digest"])
    if not _NAME.fullmatch(name) or request.path_params["prefix"] != name[:2]:
        raise ProblemError(
            BLOB_NOT_FOUND, "a blob's path is its sha256 behind its first two digits"
        )
    return Digest(bytes.fromhex(name))


def _range_header(request: Request, etag: str) -> str | None:
    """Return the `Range` of a request, None if it is for another version."""
    version = request.headers.get("if-range")
    return None if version not in {None, etag} else request.headers.get("range")


def _pieces(stack: ExitStack, file: BufferedReader, size: int) -> Iterator[bytes]:
    """Yield the next bytes of a file, and close it at their end or when the iteration ends."""
    with stack:
        remaining = size
        while remaining and (piece := file.read(min(_PIECE, remaining))):
            remaining -= len(piece)
            yield piece
