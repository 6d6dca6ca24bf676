"""Object stores and blobs: the port, the stores in memory and in a folder, and their locations.

An object is immutable bytes under a path whose last part is their sha256, so that a store need not
be trusted: a torn, damaged or foreign object does not have its name. Every failure is an OSError.

Writes are atomic: a reader sees the whole file or none. A killed process loses nothing that it has
put; a power cut takes what was put neither durably nor before a `sync`, which costs many files
hardly more than one. Write permission to the folder includes deleting and filling it.

A blob is an object under its sha256 alone, whose storage location need not be trusted. Its path is
`ab/abcdef…`, the two first digits of its name and its name: `sha256sum` checks a folder of them.
Every read is verified, and bounded before a byte is loaded.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

from ledger.io.home import DISK, Disk, open_file, read_file
from ledger.protocol import types
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import BlobError, BlobMissingError, BlobUnreachableError, EncodingError
from ledger.protocol.payloads import Payload
from ledger.protocol.types import Digest

# Objects of one folder that a reader looks at, and bytes that it accepts: more are a flood. There
# is no bound per client: anyone can put another client's name on an envelope, and use up its share.
MAX_FOLDER_OBJECTS = 65_536
MAX_FOLDER_BYTES = 512 * 2**20
MAX_SCAN_BYTES = 64 * 2**20  # bytes that one scan reads; the next scan reads the rest
MAX_READS = 8  # of an object that was not accepted and has changed since
MAX_UNREADABLE = 16  # objects, before the store itself is taken to be at fault
MAX_BLOB_BYTES = 1 << 30  # the largest blob ever read: a model of 2**28 float32 parameters

T = TypeVar("T")
_NAME = re.compile(types.BARE)
_log = logging.getLogger(__name__)


class InvalidObjectError(OSError):
    """An object's bytes do not have its name, or are more than the caller accepts."""


class ObjectStore(ABC):
    """A store of immutable objects; paths have slashes between folders.

    `get` raises FileNotFoundError for a missing object, and InvalidObjectError for one that is
    damaged or over its limit. Every method raises OSError where the store fails or refuses.
    """

    # Whether other processes read it. A power cut does not take back what they have read, so that
    # what an object refers to has to be durable before the object is put.
    is_shared = True

    @abstractmethod
    def get(self, path: str, limit: int) -> bytes:
        """Return an object of at most `limit` bytes, verified against its name."""

    @abstractmethod
    def has(self, path: str) -> bool:
        """Return whether there is an object, without reading it."""

    @abstractmethod
    def put(self, path: str, payload: Payload, *, durable: bool = True) -> bool:
        """Store an object whole, in place of a damaged one; return False if it was there.

        The payload's digest is believed. A durable one survives a power cut once this returns;
        another one after the next `sync`.
        """

    @abstractmethod
    def scan(self, folder: str, cursor: FolderCursor) -> None:
        """Deliver the objects of a folder that are new to a cursor."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete an object, if it is there; a power cut may bring it back."""

    def sync(self) -> None:  # noqa: B027 - most stores write durably, or never
        """Return once every object put so far survives a power cut."""


class FolderCursor:
    """One reader's progress in a folder that others write to; each object is delivered once.

    Objects arrive in any order and at any time, so all names are remembered. An object that was
    not accepted is read again only after it has changed, and a few times at most.
    """

    def __init__(self, accept: Callable[[bytes], bool], max_object_bytes: int) -> None:
        self.max_object_bytes = max_object_bytes
        # Epoch and number of the next object, for a store that numbers its objects.
        self.position = (b"", 0)
        self._accept = accept
        self._accepted: set[str] = set()  # shared with the replicas
        self._rejected: dict[str, tuple[Hashable, int]] = {}
        self._count = self._bytes = 0
        self._replicas: dict[int, FolderCursor] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._accepted

    @property
    def is_full(self) -> bool:
        return self._count + len(self._rejected) >= MAX_FOLDER_OBJECTS

    def replica(self, index: int) -> FolderCursor:
        """Return the cursor of one of several stores, each with its own bounds."""
        if index not in self._replicas:
            cursor = FolderCursor(self._accept, self.max_object_bytes)
            cursor._accepted = self._accepted
            self._replicas[index] = cursor
        return self._replicas[index]

    def wants(self, name: str, size: int, stamp: Hashable) -> bool:
        """Return whether an object is worth reading; its stamp differs after each change."""
        if name in self._accepted or size > self.max_object_bytes:
            return False
        last_stamp, reads = self._rejected.get(name, (None, 0))
        return reads == 0 or (reads < MAX_READS and last_stamp != stamp)

    def deliver(self, name: str, data: bytes, stamp: Hashable) -> None:
        """Take an object's bytes, if they have its name, are of use and within the bounds."""
        is_valid = sha256(data).hex() == name and self._bytes + len(data) <= MAX_FOLDER_BYTES
        if not is_valid or not self._accept(data):
            _, reads = self._rejected.get(name, (None, 0))
            self._rejected[name] = (stamp, reads + 1)
            return
        self._rejected.pop(name, None)
        self._count += 1
        self._bytes += len(data)
        self._accepted.add(name)


def deliver_listing(
    listing: Iterable[tuple[str, int, Hashable]],
    read: Callable[[str, int], bytes],
    cursor: FolderCursor,
) -> None:
    """Read the objects of a listing that a cursor wants, one byte over the limit at most."""
    remaining, unreadable = MAX_SCAN_BYTES, 0
    for name, size, stamp in listing:
        if cursor.is_full or remaining <= 0:
            return
        if not _NAME.fullmatch(name) or not cursor.wants(name, size, stamp):
            continue
        try:
            data = read(name, cursor.max_object_bytes)
        except FileNotFoundError:
            continue
        except OSError as error:
            unreadable += 1
            if unreadable >= MAX_UNREADABLE:
                raise
            _log.debug("%s cannot be read: %s", name, error.strerror)
            continue
        cursor.deliver(name, data, stamp)
        remaining -= len(data)


def verified(path: str, data: bytes, limit: int) -> bytes:
    """Return an object's bytes if they have its name and are within the limit."""
    if len(data) > limit:
        raise InvalidObjectError(f"is larger than the {limit} bytes it may have")
    if hashlib.sha256(data).hexdigest() != path.rpartition("/")[2]:
        raise InvalidObjectError("is damaged: its bytes have another sha256")
    return data


class MemoryObjects(ObjectStore):
    """Objects by folder and name, in the order of their arrival."""

    is_shared = False

    def __init__(self) -> None:
        self.folders: defaultdict[str, dict[str, bytes]] = defaultdict(dict)
        self._epoch = b"0"  # changes with each deletion, which moves the objects after it

    def get(self, path: str, limit: int) -> bytes:
        if not self.has(path):
            raise FileNotFoundError(errno.ENOENT, "there is no such object", path)
        folder, _, name = path.rpartition("/")
        return verified(path, self.folders[folder][name], limit)

    def has(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        return name in self.folders[folder]

    def put(self, path: str, payload: Payload, *, durable: bool = True) -> bool:  # noqa: ARG002
        folder, _, name = path.rpartition("/")
        data = bytes(payload.data)
        is_new = self.folders[folder].get(name) != data
        self.folders[folder][name] = data
        return is_new

    def scan(self, folder: str, cursor: FolderCursor) -> None:
        epoch, number = cursor.position
        start = number if epoch == self._epoch else 0
        new = list(islice(self.folders[folder].items(), start, None))
        for name, data in new:
            if cursor.wants(name, len(data), stamp=None):
                cursor.deliver(name, data, stamp=None)
        cursor.position = self._epoch, start + len(new)

    def delete(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        if self.folders[folder].pop(name, None) is not None:
            self._epoch = b"%d" % (int(self._epoch) + 1)


class FolderObjects(ObjectStore):
    """Files below a folder, which is made on the first write."""

    def __init__(self, folder: Path, *, disk: Disk = DISK) -> None:
        self.folder = folder
        self._disk = disk
        self._unsynced: set[Path] = set()

    def get(self, path: str, limit: int) -> bytes:
        return verified(path, read_file(self.folder / path, limit), limit)

    def has(self, path: str) -> bool:
        return (self.folder / path).is_file()

    def put(self, path: str, payload: Payload, *, durable: bool = True) -> bool:
        target, is_new = self.folder / path, True
        with suppress(OSError):  # unreadable: it is written again
            if target.is_file():
                is_new = sha256(read_file(target, payload.size)) != payload.digest
        if is_new:
            self._disk.write_whole(target, payload.data, durable=durable)
        if not durable:
            # Even if it was there: its writer may have been killed before it was durable.
            self._unsynced.add(target)
        return is_new

    def scan(self, folder: str, cursor: FolderCursor) -> None:
        path = self.folder / folder
        deliver_listing(
            _new_files(path, cursor), lambda name, limit: read_file(path / name, limit), cursor
        )

    def delete(self, path: str) -> None:
        self._disk.remove(self.folder / path)
        self._unsynced.discard(self.folder / path)

    def sync(self) -> None:
        if self._unsynced:
            self._disk.sync(self._unsynced)
            self._unsynced.clear()


def _new_files(folder: Path, cursor: FolderCursor) -> Iterator[tuple[str, int, Hashable]]:
    """Yield name, size and stamp of the files that a cursor has not accepted."""
    try:
        entries = os.scandir(folder)
    except FileNotFoundError:
        return
    with entries:
        for entry in islice(entries, MAX_FOLDER_OBJECTS):
            if entry.name in cursor:
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            yield entry.name, status.st_size, (status.st_size, status.st_mtime_ns)


MAX_LOCATIONS = 8
_MAX_CHARACTERS = 2_000


class LocationKind(Enum):
    """The adapter for a location."""

    FOLDER = "folder"
    SERVER = "server"
    REMOTE = "remote"


@dataclass(frozen=True, slots=True)
class Location:
    """A folder's path, or a URL, which may hold a secret."""

    kind: LocationKind
    text: str

    @property
    def shown(self) -> str:
        """The location without user, password, path and query, as any of these may be a key."""
        if self.kind is LocationKind.FOLDER:
            return self.text
        parts = urlsplit(self.text)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def parse_locations(option: str, text: str) -> tuple[Location, ...]:
    """Return the locations that a setting names, one or several, separated by commas."""
    parts = [part.strip() for part in text.split(",")]
    if not all(parts) or len(parts) > MAX_LOCATIONS:
        raise BlobError(f"{option}: give 1 to {MAX_LOCATIONS} folders or URLs, separated by commas")
    return tuple(_location(option, part) for part in parts)


def _location(option: str, text: str) -> Location:
    if "\0" in text or len(text) > _MAX_CHARACTERS:
        raise BlobError(
            f"{option}: a folder or URL must have at most {_MAX_CHARACTERS} characters, no null"
        )
    scheme, separator, rest = text.partition("://")
    scheme = scheme.lower()
    if not separator:
        # A mistyped URL may hold a key, and is not repeated.
        if text[:4].lower() == "http" or "@" in text:
            raise BlobError(f"{option}: the location is not a local folder or an http(s) URL")
        return Location(LocationKind.FOLDER, text)
    if scheme in {"http", "https"}:
        return Location(LocationKind.SERVER, text)
    if scheme == "file":
        return Location(LocationKind.FOLDER, str(Path(f"/{rest.lstrip('/')}")))
    if not scheme.isascii() or not scheme.replace("+", "").replace("-", "").isalnum():
        raise BlobError(f"{option}: the location is not a local folder or a URL")
    return Location(LocationKind.REMOTE, text)


class BlobReader(Protocol):
    """Blobs as an auditor reads them: BlobMissingError, BlobUnreachableError, or damaged."""

    def get(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> bytes:
        """Return the blob with this digest, verified."""

    def has(self, digest: Digest) -> bool:
        """Return whether there is something under this digest, without reading it."""


def read_as(decode: Callable[[bytes], T], digest: Digest, blobs: BlobReader) -> T | None:
    """Return the document in a blob; None if it is missing, damaged or malformed."""
    try:
        return decode(blobs.get(digest, MAX_DOCUMENT_BYTES))
    except (BlobError, EncodingError):
        return None


class BlobStore(BlobReader, Protocol):
    """Blobs as clients and members publish them; a BlobError says that the store fails."""

    def put(self, data: bytes) -> Digest: ...

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
        for objects in list(self._memory.folders.values()):
            yield from (Digest(bytes.fromhex(name)) for name in list(objects))


class FolderBlobs(ObjectBlobs):
    """Blobs as files of one folder."""

    def __init__(self, folder: Path, *, disk: Disk = DISK) -> None:
        super().__init__(FolderObjects(folder, disk=disk))
        self.folder = folder

    def path_of(self, digest: Digest) -> Path:
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
