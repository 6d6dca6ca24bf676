"""Content-addressed stores: a folder and a memory, verified on every read.

A blob's name is its sha256, so `sha256sum` checks a folder. Writes are atomic: a reader sees the
whole blob or none. Reads are bounded before a byte is loaded.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ledger.io.home import DISK, Disk, open_file, read_file
from ledger.protocol import digest_patterns
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import BlobError, BlobMissingError, BlobUnreachableError
from ledger.protocol.payload import Payload
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader
    from pathlib import Path

_NAME = re.compile(digest_patterns.BARE)

MAX_BLOB_BYTES = 1 << 30
"""Largest blob that is ever read: a model of 2**28 float32 parameters."""


class BlobReader(Protocol):
    """Where an auditor reads."""

    def get(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> bytes:
        """Return the blob with this digest, verified.

        Raises:
            BlobMissingError: there is none.
            BlobError: it is damaged, or larger than the limit.
        """

    def has(self, digest: Digest) -> bool:
        """Say whether there is something under this digest, without reading it."""


@runtime_checkable
class HashingReader(Protocol):
    """A reader that says which digest it has found: nobody in this process need hash again."""

    def get_payload(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> Payload:
        """Return the blob with this digest, hashed here, with the digest that was found.

        Raises:
            BlobMissingError: there is none.
            BlobError: it is damaged, or larger than the limit.
        """


class BlobStore(BlobReader, Protocol):
    """Where clients and members publish."""

    def put(self, data: bytes) -> Digest:
        """Store a blob and return its digest.

        Raises:
            BlobError: it cannot be written.
        """

    def put_payload(self, payload: Payload) -> None:
        """Store what this process has hashed, under the digest that it found.

        Raises:
            BlobError: it cannot be written.
        """

    def remove(self, digest: Digest) -> None:
        """Remove a blob, if it is there; after a power cut it may be there again.

        Raises:
            BlobError: it cannot be removed.
        """

    def sync(self) -> None:
        """Return once everything put so far survives a power cut.

        Raises:
            BlobError: it cannot be made durable.
        """


class MemoryBlobs:
    """Blobs in this process, for tests and short simulations."""

    def __init__(self) -> None:
        self._blobs: dict[Digest, bytes] = {}

    def put(self, data: bytes) -> Digest:
        """Store a blob and return its digest."""
        payload = Payload.of(data)
        self.put_payload(payload)
        return payload.digest

    def put_payload(self, payload: Payload) -> None:
        """Store a copy of what this process has hashed."""
        self._blobs[payload.digest] = bytes(payload.data)

    def remove(self, digest: Digest) -> None:
        """Remove a blob, if it is there."""
        self._blobs.pop(digest, None)

    def sync(self) -> None:
        """Nothing is durable here."""

    def get(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> bytes:
        """Return the blob with this digest, verified.

        Args:
            digest: sha256 of the blob.
            limit: largest size that is accepted, in bytes.

        Returns:
            The bytes.

        Raises:
            BlobMissingError: there is none.
            BlobError: it is damaged, or larger than the limit.
        """
        return _verified(self._found(digest), digest, limit)

    def get_payload(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> Payload:
        """Return the blob with this digest, and the digest that was found; see `get`."""
        return Payload(_verified(self._found(digest), digest, limit), digest)

    def has(self, digest: Digest) -> bool:
        """Say whether there is something under this digest, without reading it."""
        return digest in self._blobs

    def digests(self) -> Iterator[Digest]:
        """Yield the names of all blobs, in no order."""
        yield from tuple(self._blobs)

    def _found(self, digest: Digest) -> bytes:
        if digest not in self._blobs:
            raise BlobMissingError(f"blob {digest.hex()} is missing")
        return self._blobs[digest]


class FolderBlobs:
    """Blobs as files `ab/abcdef…` of one folder.

    A killed process loses nothing that it has put; what survives a power cut is what was put
    before a `sync`, which costs many blobs hardly more than one.

    Attributes:
        folder: the folder; made on the first write.
    """

    def __init__(self, folder: Path, *, disk: Disk = DISK) -> None:
        self.folder = folder
        self._disk = disk
        self._unsynced: set[Path] = set()

    def put(self, data: bytes) -> Digest:
        """Store a blob and return its digest.

        Args:
            data: the bytes.

        Returns:
            Their sha256.

        Raises:
            BlobError: the folder cannot be written.
        """
        payload = Payload.of(data)
        self.put_payload(payload)
        return payload.digest

    def put_payload(self, payload: Payload) -> None:
        """Store what this process has hashed, under the digest that it found.

        Args:
            payload: the bytes, which are written from where they lie.

        Raises:
            BlobError: the folder cannot be written.
        """
        path = self.path_of(payload.digest)
        try:
            # A damaged file under this name is replaced, not trusted.
            if not _holds(path, payload):
                self._disk.write_whole(path, payload.data, durable=False)
        except OSError as error:
            raise BlobError(f"blob {path} cannot be written: {error.strerror}") from error
        # Even if it was there: who put it may have been killed before it was durable.
        self._unsynced.add(path)

    def remove(self, digest: Digest) -> None:
        """Remove a blob, if it is there; after a power cut it may be there again.

        Args:
            digest: sha256 of the blob.

        Raises:
            BlobError: it cannot be removed.
        """
        path = self.path_of(digest)
        try:
            self._disk.remove(path)
        except OSError as error:
            raise BlobError(f"blob {path} cannot be removed: {error.strerror}") from error
        self._unsynced.discard(path)

    def sync(self) -> None:
        """Return once everything put so far survives a power cut.

        Raises:
            BlobError: it cannot be made durable.
        """
        if not self._unsynced:
            return
        try:
            self._disk.sync(self._unsynced)
        except OSError as error:
            raise BlobError(
                f"blob {error.filename} cannot be made durable: {error.strerror}"
            ) from error
        self._unsynced.clear()

    def get(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> bytes:
        """Return the blob with this digest, verified.

        Args:
            digest: sha256 of the blob.
            limit: largest size that is accepted, in bytes.

        Returns:
            The bytes.

        Raises:
            BlobMissingError: there is none.
            BlobUnreachableError: it is there, but cannot be read.
            BlobError: it is damaged, or larger than the limit.
        """
        return _verified(self._found(digest, limit), digest, limit)

    def get_payload(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> Payload:
        """Return the blob with this digest, and the digest that was found; see `get`."""
        return Payload(_verified(self._found(digest, limit), digest, limit), digest)

    @contextmanager
    def opened(
        self, digest: Digest, limit: int = MAX_BLOB_BYTES
    ) -> Iterator[tuple[BufferedReader, int]]:
        """Open the blob with this digest, verified, for who passes it on piece by piece.

        Args:
            digest: sha256 of the blob.
            limit: largest size that is accepted, in bytes.

        Yields:
            The file at its beginning, and its size.

        Raises:
            BlobMissingError: there is none.
            BlobUnreachableError: it is there, but cannot be read.
            BlobError: it is damaged, or larger than the limit.
        """
        with self._reading(digest), open_file(self.path_of(digest)) as file:
            size = file.seek(0, os.SEEK_END)
            if size > limit:
                raise BlobError(f"blob {digest.hex()} is larger than the {limit} bytes it may have")
            file.seek(0)
            if hashlib.file_digest(file, "sha256").digest() != digest:
                raise BlobError(f"blob {digest.hex()} is damaged: its bytes have another sha256")
            file.seek(0)
            yield file, size

    def has(self, digest: Digest) -> bool:
        """Say whether there is something under this digest, without reading it."""
        return self.path_of(digest).is_file()

    def path_of(self, digest: Digest) -> Path:
        """Return where a blob's file is, if it is there.

        Args:
            digest: sha256 of the blob.
        """
        name = digest.hex()
        return self.folder / name[:2] / name

    def digests(self) -> Iterator[Digest]:
        """Yield the names of all blobs, unverified and in no order."""
        for path in self.folder.glob("??/*"):
            name = path.name
            if _NAME.fullmatch(name) and name[:2] == path.parent.name:
                yield Digest(bytes.fromhex(name))

    def _found(self, digest: Digest, limit: int) -> bytes:
        with self._reading(digest):
            return read_file(self.path_of(digest), limit)

    @contextmanager
    def _reading(self, digest: Digest) -> Iterator[None]:
        """Have the disk's errors say which blob it is.

        Raises:
            BlobMissingError: there is none.
            BlobUnreachableError: it cannot be read.
        """
        try:
            yield
        except FileNotFoundError as error:
            raise BlobMissingError(f"blob {digest.hex()} is missing") from error
        except OSError as error:
            raise BlobUnreachableError(
                f"blob {digest.hex()} cannot be read: {error.strerror}"
            ) from error


def _holds(path: Path, payload: Payload) -> bool:
    return path.is_file() and sha256(read_file(path, payload.size)) == payload.digest


def _verified(data: bytes, digest: Digest, limit: int) -> bytes:
    if len(data) > limit:
        raise BlobError(f"blob {digest.hex()} is larger than the {limit} bytes it may have")
    if sha256(data) != digest:
        raise BlobError(f"blob {digest.hex()} is damaged: its bytes have another sha256")
    return data
