"""Which blobs of a folder are undamaged: hashed when somebody asks, but not for each who asks."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from ledger.protocol.errors import BlobError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.protocol.types import Digest
    from ledger.storage.blobs import FolderBlobs

FRESH_SECONDS = 60.0
"""For so long a file that was found undamaged, and has not been written since, counts as such.

Anybody may ask, in a few bytes and as often as he likes, and a large blob takes a processor the
better part of a second.
"""

MOST_KNOWN = 16_384


class _Found(NamedTuple):
    stamp: tuple[int, ...]
    at: float


class IntegrityCache:
    """Says whether blobs are there undamaged; safe to share between threads.

    Args:
        blobs: of a folder.
        clock: seconds that only grow.
    """

    def __init__(self, blobs: FolderBlobs, clock: Callable[[], float]) -> None:
        self._blobs = blobs
        self._clock = clock
        self._found: dict[Digest, _Found] = {}
        self._lock = threading.Lock()

    def is_whole(self, digest: Digest, size: int) -> bool:
        """Say whether a blob is there undamaged.

        Args:
            digest: sha256 of the blob.
            size: that it must have.
        """
        stamp = self._stamp(digest)
        if stamp is None or stamp[0] != size:
            return False
        with self._lock:
            known = self._found.get(digest)
        is_fresh = known is not None and self._clock() - known.at < FRESH_SECONDS
        if known is not None and is_fresh and known.stamp == stamp:
            return True
        return self._is_hashed_whole(digest, size, stamp)

    def _is_hashed_whole(self, digest: Digest, size: int, stamp: tuple[int, ...]) -> bool:
        try:
            with self._blobs.opened(digest, size):
                pass
        except BlobError:
            return False
        with self._lock:
            self._found.pop(digest, None)
            self._found[digest] = _Found(stamp, self._clock())
            while len(self._found) > MOST_KNOWN:
                del self._found[next(iter(self._found))]
        return True

    def _stamp(self, digest: Digest) -> tuple[int, ...] | None:
        """Return what is otherwise once somebody has written a blob's file, None without one."""
        try:
            status = self._blobs.path_of(digest).stat()
        except OSError:
            return None
        return status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns
