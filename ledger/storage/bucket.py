"""Blobs in anything that fsspec reaches: buckets, and file systems on a network.

What is put is whole once the call returns, or at least differs from its name until it is, and
every read is verified, so that nothing has to be renamed. Credentials come from where the file
system looks for them (for S3 the environment and `~/.aws`, and `FSSPEC_S3_...`); none is shown.
"""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING, Any

from ledger.protocol.encoding import sha256
from ledger.protocol.errors import BlobError, BlobMissingError, BlobUnreachableError
from ledger.protocol.payload import Payload
from ledger.storage.blobs import MAX_BLOB_BYTES
from ledger.storage.timed import TimedFiles

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from ledger.protocol.types import Digest
    from ledger.storage.locations import Location

_BUCKETS = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss", "oci"}
_CHANGES = ("ETag", "mtime", "LastModified", "last_modified", "modified", "created")
"""Under which names file systems say when a file was written, or as what."""


class RemoteFiles:
    """Files below one URL; every failure is an OSError that names the place and no key.

    Args:
        place: of a protocol that fsspec knows.

    Raises:
        BlobError: fsspec or what it needs for the protocol is missing, or the URL is none.
    """

    def __init__(self, place: Location) -> None:
        self.shown = place.shown
        try:
            from fsspec.core import url_to_fs  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise BlobError(
                f"{self.shown} needs the extra [remote]: pip install -c constraints.txt '.[remote]'"
            ) from error
        try:
            files, root = url_to_fs(place.text, use_listings_cache=False)
        except ImportError as error:
            raise BlobError(
                f"{self.shown}: a package for this protocol is missing; the extra [remote] has "
                f"that for s3://"
            ) from error
        except Exception as error:  # noqa: BLE001 - whatever it is, it may repeat the URL
            raise BlobError(
                f"{self.shown}: fsspec reaches no blobs or mail there ({type(error).__name__})"
            ) from None
        self._files = TimedFiles(files)
        self._root = str(root).rstrip("/")
        # It has no folders to be made; what would be made is a mistyped bucket.
        self._is_bucket = place.text.partition("://")[0].lower() in _BUCKETS

    def read(self, path: str, limit: int) -> bytes:
        """Return what a file holds, and one byte more than the limit if there is more.

        Args:
            path: below the URL.
            limit: so many bytes at most.

        Raises:
            FileNotFoundError: there is no such file.
            OSError: it cannot be read.
        """
        with self._translated(path):
            return self._files.read(self._below(path), limit + 1)

    def write(self, path: str, data: bytes) -> None:
        """Write a file.

        Args:
            path: below the URL.
            data: what it shall hold.

        Raises:
            FileNotFoundError: there is no such bucket.
            OSError: it cannot be written.
        """
        target = self._below(path)
        with self._translated(path):
            try:
                self._files.ask("pipe_file", target, data, size=len(data))
            except FileNotFoundError:
                if self._is_bucket:
                    raise
                self._files.ask("makedirs", target.rpartition("/")[0], exist_ok=True)
                self._files.ask("pipe_file", target, data, size=len(data))

    def exists(self, path: str) -> bool:
        """Say whether there is a file.

        Args:
            path: below the URL.

        Raises:
            OSError: that cannot be told.
        """
        # Not `exists`, which in many file systems takes every failure for an absence.
        try:
            with self._translated(path):
                self._files.ask("info", self._below(path))
        except FileNotFoundError:
            return False
        return True

    def remove(self, path: str) -> None:
        """Remove a file, if it is there.

        Args:
            path: below the URL.

        Raises:
            OSError: it cannot be removed.
        """
        with contextlib.suppress(FileNotFoundError), self._translated(path):
            self._files.ask("rm_file", self._below(path))

    def listing(self, folder: str) -> Iterator[tuple[str, int, Hashable]]:
        """Yield name, size and stamp of the files in a folder; the stamp differs after a change.

        Args:
            folder: below the URL.

        Raises:
            OSError: it cannot be listed.
        """
        found: list[dict[str, Any]] = []
        with contextlib.suppress(FileNotFoundError), self._translated(folder):
            found = self._files.ask("ls", self._below(folder), detail=True)
        for entry in found:
            if entry.get("type") == "file":
                size = int(entry.get("size") or 0)
                stamp = tuple(str(entry.get(name)) for name in _CHANGES)
                yield str(entry["name"]).rpartition("/")[2], size, (size, *stamp)

    def _below(self, path: str) -> str:
        return f"{self._root}/{path}"

    @contextlib.contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        """Have whatever a file system raises be an OSError that names the file.

        Raises:
            FileNotFoundError: there is no such file.
            OSError: everything else.
        """
        named = f"{self.shown}/.../{path}"
        try:
            yield
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", named) from None
        except Exception as error:  # noqa: BLE001 - each file system has errors of its own
            number = getattr(error, "errno", None)
            said = f"the place fails ({type(error).__name__})"
            raise OSError(number if isinstance(number, int) else errno.EIO, said, named) from None


class RemoteBlobs:
    """Blobs as files `ab/abcdef…` below one URL, verified on every read.

    Args:
        files: of the place.
    """

    def __init__(self, files: RemoteFiles) -> None:
        self._files = files

    def put(self, data: bytes) -> Digest:
        """Store a blob and return its digest.

        Args:
            data: the bytes.

        Raises:
            BlobError: it cannot be written.
        """
        payload = Payload.of(data)
        self.put_payload(payload)
        return payload.digest

    def put_payload(self, payload: Payload) -> None:
        """Store what this process has hashed, under the digest that it found.

        Args:
            payload: the bytes; what is there already is compared, and written again if it differs.

        Raises:
            BlobError: it cannot be written.
        """
        path = _path(payload.digest)
        try:
            if not self._holds(path, payload):
                self._files.write(path, bytes(payload.data))
        except OSError as error:
            raise BlobError(f"blob {error.filename} cannot be written: {error.strerror}") from error

    def remove(self, digest: Digest) -> None:
        """Remove a blob, if it is there.

        Args:
            digest: sha256 of the blob.

        Raises:
            BlobError: it cannot be removed.
        """
        try:
            self._files.remove(_path(digest))
        except OSError as error:
            raise BlobError(f"blob {error.filename} cannot be removed: {error.strerror}") from error

    def sync(self) -> None:
        """Nothing is left to do: the place answers once it has kept it."""

    def get(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> bytes:
        """Return the blob with this digest, verified.

        Args:
            digest: sha256 of the blob.
            limit: largest size that is accepted, in bytes.

        Raises:
            BlobMissingError: there is none.
            BlobUnreachableError: it cannot be read.
            BlobError: it is damaged, or larger than the limit.
        """
        with self._reading(digest):
            data = self._files.read(_path(digest), limit)
        if len(data) > limit:
            raise BlobError(f"blob {digest.hex()} is larger than the {limit} bytes it may have")
        if sha256(data) != digest:
            raise BlobError(f"blob {digest.hex()} is damaged: its bytes have another sha256")
        return data

    def get_payload(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> Payload:
        """Return the blob with this digest, and the digest that was found; see `get`."""
        return Payload(self.get(digest, limit), digest)

    def has(self, digest: Digest) -> bool:
        """Say whether there is something under this digest, without reading it.

        Args:
            digest: sha256 of the blob.

        Raises:
            BlobUnreachableError: that cannot be told.
        """
        with self._reading(digest):
            return self._files.exists(_path(digest))

    def _holds(self, path: str, payload: Payload) -> bool:
        try:
            return sha256(self._files.read(path, payload.size)) == payload.digest
        except FileNotFoundError:
            return False

    @contextlib.contextmanager
    def _reading(self, digest: Digest) -> Iterator[None]:
        """Have the place's errors say which blob it is.

        Raises:
            BlobMissingError: there is none.
            BlobUnreachableError: it cannot be read.
        """
        try:
            yield
        except FileNotFoundError:
            raise BlobMissingError(f"blob {digest.hex()} is missing") from None
        except OSError as error:
            raise BlobUnreachableError(
                f"blob {digest.hex()} cannot be read: {self._files.shown}: {error.strerror}"
            ) from error


def _path(digest: Digest) -> str:
    name = digest.hex()
    return f"{name[:2]}/{name}"
