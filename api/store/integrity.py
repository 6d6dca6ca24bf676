"""Integrity of a folder's blobs: hashed on request, but not for each request."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ledger.protocol.errors import BlobError
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from ledger.storage.blobs import FolderBlobs

FRESH_SECONDS = 60.0
"""For this long an intact file that has not been written since counts as intact.

Anyone may ask, in a few bytes and as often as they like, and hashing a large blob takes a processor
the better part of a second.
"""

MAX_CACHED = 16_384


class _IntactFile(NamedTuple):
    stamp: tuple[int, ...]
    hashed_at: float


class IntegrityCache:
    """Tells whether blobs are there undamaged; safe to share between threads.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, blobs: FolderBlobs, clock: Callable[[], float]) -> None:
        self._blobs = blobs
        self._clock = clock
        self._intact: dict[Digest, _IntactFile] = {}
        self._lock = threading.Lock()

    def is_intact(self, digest: Digest, size: int) -> bool:
        """Return whether a blob of this size is there undamaged."""
        stamp = self._stamp(digest)
        if stamp is None or stamp[0] != size:
            return False
        with self._lock:
            cached = self._intact.get(digest)
        is_fresh = cached is not None and self._clock() - cached.hashed_at < FRESH_SECONDS
        if cached is not None and is_fresh and cached.stamp == stamp:
            return True
        return self._hash(digest, size, stamp)

    def _hash(self, digest: Digest, size: int, stamp: tuple[int, ...]) -> bool:
        try:
            with self._blobs.opened(digest, size):
                pass
        except BlobError:
            return False
        with self._lock:
            self._intact.pop(digest, None)
            self._intact[digest] = _IntactFile(stamp, self._clock())
            while len(self._intact) > MAX_CACHED:
                del self._intact[next(iter(self._intact))]
        return True

    def _stamp(self, digest: Digest) -> tuple[int, ...] | None:
        """Return a value that differs after each write of a blob's file, None without a file."""
        try:
            status = self._blobs.path_of(digest).stat()
        except OSError:
            return None
        return status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns
