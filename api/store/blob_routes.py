"""Blobs of a store: anyone reads, registered clients write, and no blob changes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from anyio import CancelScope, CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import Response

from api.http.byte_range import MEDIA_TYPE, send_blob
from api.http.encoded_answer import IMMUTABLE, is_known
from api.http.problems import BLOB_NOT_FOUND, ProblemError
from api.store.charges import ChargeKind
from api.store.integrity import IntegrityCache
from ledger.io.home import open_file
from ledger.protocol import digest_patterns
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from api.store.receiver import Receiver
    from ledger.storage.blobs import FolderBlobs

HASHED_AT_ONCE = 2
"""Blobs that are hashed at once for HEAD; the other threads serve readers."""

_NAME = re.compile(digest_patterns.BARE)
_NO_STORE = {"Cache-Control": "no-store"}


class BlobRoutes:
    """Routes of a folder's blobs.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, receiver: Receiver, blobs: FolderBlobs, clock: Callable[[], float]) -> None:
        self._receiver = receiver
        self._blobs = blobs
        self._integrity = IntegrityCache(blobs, clock)
        self._hashing = CapacityLimiter(HASHED_AT_ONCE)

    async def get(self, request: Request) -> Response:
        """Return a blob's bytes or a range of them, unverified: the reader has its name."""
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
            if request.method == "GET":
                return send_blob(request, stack, file, size, headers)
            # A client that asks before it uploads would not replace a damaged blob.
            is_intact = partial(self._integrity.is_intact, digest, size)
            if not await to_thread.run_sync(is_intact, limiter=self._hashing):
                raise ProblemError(BLOB_NOT_FOUND, f"{name} is damaged here")
            headers["Content-Length"] = str(size)
            return Response(headers=headers, media_type=MEDIA_TYPE)
        finally:
            stack.close()

    async def put(self, request: Request) -> Response:
        """Store a blob: 201 once it is durable, 200 if it was there."""
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


def _digest_of(request: Request) -> Digest:
    name = str(request.path_params["digest"])
    if not _NAME.fullmatch(name) or request.path_params["prefix"] != name[:2]:
        raise ProblemError(
            BLOB_NOT_FOUND, "a blob's path is its sha256 behind its first two digits"
        )
    return Digest(bytes.fromhex(name))
