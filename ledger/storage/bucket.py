"""Objects in anything that fsspec reaches: buckets, and file systems on a network.

A bucket shows an object whole or not at all, and every read is verified, so that nothing has to be
renamed. Credentials come from where the file system looks for them (for S3 the environment and
`~/.aws`, and `FSSPEC_S3_...`); none is shown.

The time-outs of these file systems are for one wait each, and they trust their host's statement of
a file's size. A host that sends a byte now and then would block a worker without end. One that
sends more than it stated would fill the worker's memory. So each operation has a deadline where the
file system works on an event loop, and a file is read in pieces.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from collections.abc import Hashable, Iterator
from itertools import islice
from typing import Any

from ledger.io.extras import install_command
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import BlobError
from ledger.protocol.payloads import Payload
from ledger.storage import blobs

# For a listing, a question, or a removal; to write, beyond the time that the bytes need.
OPERATION_SECONDS = 60.0
READ_SECONDS = 20.0  # to read, beyond the time that the bytes need
LEAST_BYTES_PER_SECOND = 65_536
_BUCKETS = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss", "oci"}
# Keys under which file systems give the time or version of a write.
_VERSION_KEYS = ("ETag", "mtime", "LastModified", "last_modified", "modified", "created")


class BucketObjects(blobs.ObjectStore):
    """Objects below one URL; every failure is an OSError that names the location and no key."""

    def __init__(self, location: blobs.Location) -> None:
        self._shown = location.shown
        try:
            from fsspec.asyn import AsyncFileSystem, sync  # noqa: PLC0415 - an extra
            from fsspec.core import url_to_fs  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise BlobError(
                f"{self._shown} needs the extra [remote]: {install_command('remote')}"
            ) from error
        try:
            files, root = url_to_fs(location.text, use_listings_cache=False)
        except ImportError as error:
            raise BlobError(
                f"{self._shown}: a package for this protocol is missing; for s3, run "
                f"{install_command('remote')}"
            ) from error
        except Exception as error:  # noqa: BLE001 - whatever it is, it may repeat the URL
            raise BlobError(
                f"{self._shown}: fsspec finds no blobs or mail ({type(error).__name__})"
            ) from None
        self._files: Any = files
        self._sync = sync
        self._is_timed = isinstance(files, AsyncFileSystem)
        self._is_streamed = (
            self._is_timed and type(files).open_async is not AsyncFileSystem.open_async
        )
        self._root = str(root).rstrip("/")
        # A bucket has no folders to make; what would be made is a mistyped bucket.
        self._is_bucket = location.text.partition("://")[0].lower() in _BUCKETS

    def get(self, path: str, limit: int) -> bytes:
        return blobs.verified(path, self._read(path, limit), limit)

    def has(self, path: str) -> bool:
        # Not `exists`, which in many file systems takes every failure for an absence.
        try:
            with self._translated(path):
                self._asked("info", self._below(path))
        except FileNotFoundError:
            return False
        return True

    def put(self, path: str, payload: Payload, *, durable: bool = True) -> bool:  # noqa: ARG002
        with contextlib.suppress(FileNotFoundError):
            if sha256(self._read(path, payload.size)) == payload.digest:
                return False
        target, data = self._below(path), bytes(payload.data)
        with self._translated(path):
            try:
                self._asked("pipe_file", target, data, size=len(data))
            except FileNotFoundError:
                if self._is_bucket:
                    raise
                self._asked("makedirs", target.rpartition("/")[0], exist_ok=True)
                self._asked("pipe_file", target, data, size=len(data))
        return True

    def scan(self, folder: str, cursor: blobs.FolderCursor) -> None:
        listing = islice(self._listing(folder), blobs.MAX_FOLDER_OBJECTS)
        blobs.deliver_listing(
            listing, lambda name, limit: self._read(f"{folder}/{name}", limit), cursor
        )

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError), self._translated(path):
            self._asked("rm_file", self._below(path))

    def _read(self, path: str, limit: int) -> bytes:
        with self._translated(path):
            if not self._is_streamed:
                with self._files.open(self._below(path), "rb", cache_type="none") as file:
                    return bytes(file.read(limit + 1))
            return bytes(self._sync(self._files.loop, self._stream, self._below(path), limit + 1))

    def _listing(self, folder: str) -> Iterator[tuple[str, int, Hashable]]:
        entries: list[dict[str, Any]] = []
        with contextlib.suppress(FileNotFoundError), self._translated(folder):
            entries = self._asked("ls", self._below(folder), detail=True)
        for entry in entries:
            if entry.get("type") == "file":
                size = int(entry.get("size") or 0)
                stamp = tuple(str(entry.get(key)) for key in _VERSION_KEYS)
                yield str(entry["name"]).rpartition("/")[2], size, (size, *stamp)

    def _below(self, path: str) -> str:
        return f"{self._root}/{path}"

    @contextlib.contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        """Turn whatever a file system raises into an OSError that names the object."""
        shown = f"{self._shown}/.../{path}"
        try:
            yield
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, "there is no such object", shown) from None
        except Exception as error:  # noqa: BLE001 - each file system has errors of its own
            number = getattr(error, "errno", None)
            reason = f"{self._shown} fails ({type(error).__name__})"
            raise OSError(number if isinstance(number, int) else errno.EIO, reason, shown) from None

    def _asked(self, method: str, *arguments: object, size: int = 0, **options: object) -> Any:
        if not self._is_timed:
            return getattr(self._files, method)(*arguments, **options)
        seconds = OPERATION_SECONDS + size / LEAST_BYTES_PER_SECOND
        call = getattr(self._files, f"_{method}")
        return self._sync(self._files.loop, call, *arguments, timeout=seconds, **options)

    async def _stream(self, path: str, limit: int) -> bytearray:
        data, start = bytearray(), time.monotonic()
        file = await self._files.open_async(path, "rb")
        try:
            while len(data) < limit:
                end = start + READ_SECONDS + len(data) / LEAST_BYTES_PER_SECOND
                async with asyncio.timeout(end - time.monotonic()):
                    piece = await file.read(min(1 << 20, limit - len(data)))
                if not piece:
                    break
                data += piece
        finally:
            # Else the connection of a bucket's object stays open until all has come.
            body = getattr(file, "r", None)
            if body is not None:
                body.close()
        return data
