"""Blobs: objects under their sha256 alone, whose storage location need not be trusted.

A blob's path is `ab/abcdef…`, the two first digits of its name and its name: `sha256sum` checks a
folder of them. Every read is verified, and bounded before a byte is loaded.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Protocol

from ledger.io.home import DISK, Disk, open_file
from ledger.protocol import types
from ledger.protocol.errors import BlobError, BlobMissingError, BlobUnreachableError
from ledger.protocol.payloads import Payload
from ledger.protocol.types import Digest
from ledger.storage.objects import FolderObjects, InvalidObjectError, MemoryObjects, ObjectStore

MAX_BLOB_BYTES = 1 << 30
"""Largest blob that is ever read: a model of 2**28 float32 parameters."""

_NAME = re.compile(types.BARE)


class BlobReader(Protocol):
    """Blobs as an auditor reads them.

    A BlobMissingError says that there is none, a BlobUnreachableError that the store does not tell,
    and any other BlobError that the blob is damaged or larger than the limit.
    """

    def get(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> bytes:
        """Return the blob with this digest, verified."""

    def has(self, digest: Digest) -> bool:
        """Return whether there is something under this digest, without reading it."""


class BlobStore(BlobReader, Protocol):
    """Blobs as clients and members publish them; a BlobError says that the store fails."""

    def put(self, data: bytes) -> Digest:
        """Store a blob and return its digest."""

    def put_payload(self, payload: Payload) -> None:
        """Store a blob under the digest that this process has computed."""

    def remove(self, digest: Digest) -> None:
        """Remove a blob, if it is there; a power cut may bring it back."""

    def sync(self) -> None:
        """Return once everything put so far survives a power cut."""


class ObjectBlobs:
    """The blobs of an object store."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def get(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> bytes:
        with _reading(digest):
            return self._objects.get(blob_path(digest), limit)

    def get_payload(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> Payload:
        with _reading(digest):
            return Payload(self._objects.get(blob_path(digest), limit), digest)

    def has(self, digest: Digest) -> bool:
        with _reading(digest):
            return self._objects.has(blob_path(digest))

    def put(self, data: bytes) -> Digest:
        payload = Payload.of(data)
        self.put_payload(payload)
        return payload.digest

    def put_payload(self, payload: Payload) -> None:
        with _writing("written", payload.digest):
            self._objects.put(blob_path(payload.digest), payload, durable=False)

    def remove(self, digest: Digest) -> None:
        with _writing("removed", digest):
            self._objects.delete(blob_path(digest))

    def sync(self) -> None:
        with _writing("made durable"):
            self._objects.sync()


class MemoryBlobs(ObjectBlobs):
    """Blobs in this process, for tests and short simulations."""

    def __init__(self) -> None:
        self._memory = MemoryObjects()
        super().__init__(self._memory)

    def digests(self) -> Iterator[Digest]:
        return (Digest(bytes.fromhex(name)) for name in self._memory.names())


class FolderBlobs(ObjectBlobs):
    """Blobs as files of one folder."""

    def __init__(self, folder: Path, *, disk: Disk = DISK) -> None:
        super().__init__(FolderObjects(folder, disk=disk))
        self.folder = folder

    def path_of(self, digest: Digest) -> Path:
        """Return the path of a blob's file, if it is there."""
        return self.folder / blob_path(digest)

    def digests(self) -> Iterator[Digest]:
        """Yield the digests of all blobs, unverified and in any order."""
        for path in self.folder.glob("??/*"):
            name = path.name
            if _NAME.fullmatch(name) and name[:2] == path.parent.name:
                yield Digest(bytes.fromhex(name))

    @contextmanager
    def opened(
        self, digest: Digest, limit: int = MAX_BLOB_BYTES
    ) -> Iterator[tuple[BufferedReader, int]]:
        """Open the blob with this digest, verified, at its beginning; also yield its size."""
        with _reading(digest), open_file(self.path_of(digest)) as file:
            size = file.seek(0, os.SEEK_END)
            if size > limit:
                raise BlobError(f"blob {digest.hex()} is larger than the {limit} bytes it may have")
            file.seek(0)
            if hashlib.file_digest(file, "sha256").digest() != digest:
                raise BlobError(f"blob {digest.hex()} is damaged: its bytes have another sha256")
            file.seek(0)
            yield file, size


def blob_path(digest: Digest) -> str:
    """Return the path of a blob in its store."""
    name = digest.hex()
    return f"{name[:2]}/{name}"


@contextmanager
def _reading(digest: Digest) -> Iterator[None]:
    """Translate a store's errors."""
    try:
        yield
    except FileNotFoundError as error:
        raise BlobMissingError(f"blob {digest.hex()} is missing") from error
    except InvalidObjectError as error:
        raise BlobError(f"blob {digest.hex()} {error}") from error
    except OSError as error:
        raise BlobUnreachableError(
            f"blob {digest.hex()} cannot be read: {error.strerror}"
        ) from error


@contextmanager
def _writing(participle: str, digest: Digest | None = None) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        name = error.filename or (b"" if digest is None else digest).hex()
        raise BlobError(f"blob {name} cannot be {participle}: {error.strerror}") from error
