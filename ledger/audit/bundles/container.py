"""The container of a bundle: a plain tar (ustar) of which every byte is determined by its parts.

Anything that reads tar can open one, `tar -xf` and `sha256sum` included. What is read here is held
against what would have been written: another header, order, padding or ending is refused. There is
no compression, no link, no folder and no name but `bundle.json` and `blobs/` with a sha256, so that
nothing can be larger or elsewhere than it seems.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ledger.io.home import writing_named
from ledger.protocol import types
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import BlobError, BlobMissingError, EncodingError
from ledger.protocol.types import Digest
from ledger.storage.blobs import MAX_BLOB_BYTES, BlobReader

MANIFEST = "bundle.json"
MAX_MANIFEST_BYTES = 64 << 20
MAX_BLOBS = 10_000
BLOCK = 512
_AT_ONCE = 1 << 20
_BLOB = re.compile(f"blobs/({types.BARE})")
_SIZE = re.compile(rb"[0-7]{11}\0")
_END = bytes(2 * BLOCK)


@dataclass(frozen=True, slots=True)
class BlobSpan:
    """The location of a blob in a bundle's file."""

    start: int
    size: int


class BundleFile:
    """A bundle that is open for reading: its manifest, and the positions of its blobs.

    Attributes:
        manifest: the bytes of `bundle.json`.
    """

    def __init__(self, file: IO[bytes]) -> None:
        """Read a bundle once, from its beginning to its end; every blob is hashed.

        Args:
            file: opened for reading, and kept open by the caller.
        """
        self._file = file
        self._parts: dict[Digest, BlobSpan] = {}
        self.manifest = self._read_manifest()
        previous = ""
        while (name := self._read_blob(previous)) is not None:
            previous = name
            if len(self._parts) > MAX_BLOBS:
                raise EncodingError(f"a bundle has at most {MAX_BLOBS} blobs")

    def get(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> bytes:
        """Return the blob with this digest, verified.

        Args:
            digest: sha256 of the blob.
            limit: largest size that is accepted, in bytes.

        Returns:
            The bytes.
        """
        part = self._parts.get(digest)
        if part is None:
            raise BlobMissingError(f"blob {digest.hex()} is not in the bundle")
        if part.size > limit:
            raise BlobError(f"blob {digest.hex()} is larger than the {limit} bytes it may have")
        self._file.seek(part.start)
        data = self._file.read(part.size)
        if sha256(data) != digest:
            raise BlobError(f"blob {digest.hex()} has changed since the bundle was opened")
        return data

    def has(self, digest: Digest) -> bool:
        """Say whether there is a blob with this digest."""
        return digest in self._parts

    def digests(self) -> Iterator[Digest]:
        """Yield the names of all blobs, ascending."""
        yield from self._parts

    def _read_manifest(self) -> bytes:
        size = self._header(MANIFEST, MAX_MANIFEST_BYTES)
        data = self._exactly(size)
        self._padding(size)
        return data

    def _read_blob(self, previous: str) -> str | None:
        """Read one blob past; return its name, None at the end of the bundle."""
        block = self._exactly(BLOCK)
        if block == bytes(BLOCK):
            if self._file.read(BLOCK + 1) != bytes(BLOCK):
                raise EncodingError("a bundle ends with two empty blocks, and nothing after them")
            return None
        name = block[:100].rstrip(b"\0").decode("ascii", "replace")
        match = _BLOB.fullmatch(name)
        if match is None:
            raise EncodingError(f"{name!r:.120} is no name of a part: blobs/ and a sha256 is")
        if name <= previous:
            raise EncodingError(f"{name} comes after {previous}: names ascend, and come once")
        size = _size_of(block, name, MAX_BLOB_BYTES)
        digest = Digest(bytes.fromhex(match[1]))
        self._parts[digest] = BlobSpan(self._file.tell(), size)
        if self._hash(size) != digest:
            raise EncodingError(f"{name} has another sha256 than its name")
        self._padding(size)
        return name

    def _header(self, name: str, most: int) -> int:
        block = self._exactly(BLOCK)
        return _size_of(block, name, most)

    def _hash(self, size: int) -> bytes:
        digest = hashlib.sha256()
        left = size
        while left:
            data = self._exactly(min(left, _AT_ONCE))
            digest.update(data)
            left -= len(data)
        return digest.digest()

    def _padding(self, size: int) -> None:
        length = -size % BLOCK
        if self._exactly(length) != bytes(length):
            raise EncodingError("a part is filled up to whole blocks with zeros, and not otherwise")

    def _exactly(self, length: int) -> bytes:
        data = self._file.read(length)
        if len(data) != length:
            raise EncodingError(f"the bundle ends {length - len(data)} bytes too early")
        return data


@contextmanager
def open_bundle(path: Path) -> Iterator[BundleFile]:
    """Open a bundle's file for reading: a pipe or a device under its name does not block."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no file, but a folder, a pipe or a device")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield BundleFile(file)
    finally:
        os.close(descriptor)


def write_container(
    path: Path, manifest: bytes, digests: Iterable[Digest], blobs: BlobReader
) -> None:
    """Write a bundle's file: it is there whole, or not at all.

    Args:
        path: of the file, as a user named it; an existing file is replaced.
        manifest: the bytes of `bundle.json`.
        blobs: where they are; one at a time is held.
    """
    with writing_named(path) as file:
        for part in container_parts(manifest, digests, blobs):
            file.write(part)


def container_parts(
    manifest: bytes, digests: Iterable[Digest], blobs: BlobReader
) -> Iterator[bytes]:
    """Yield a bundle's bytes, part by part.

    Args:
        manifest: the bytes of `bundle.json`.
        blobs: where they are; one at a time is held.

    Yields:
        Bytes that follow one another.
    """
    if len(manifest) > MAX_MANIFEST_BYTES:
        raise EncodingError(
            f"the manifest has {len(manifest)} bytes, and at most {MAX_MANIFEST_BYTES}"
        )
    yield _header(MANIFEST, len(manifest)) + manifest + bytes(-len(manifest) % BLOCK)
    for digest in sorted(set(digests)):
        data = blobs.get(digest)
        yield _header(f"blobs/{digest.hex()}", len(data))
        yield data
        yield bytes(-len(data) % BLOCK)
    yield _END


def _size_of(block: bytes, name: str, most: int) -> int:
    """Return the size that a header gives, if it is the header that such a part has."""
    field = block[124:136]
    if not _SIZE.fullmatch(field):
        raise EncodingError(f"{name} has no size in eleven octal digits")
    size = int(field[:-1], 8)
    if size > most:
        raise EncodingError(f"{name} has {size} bytes, and at most {most}")
    if block != _header(name, size):
        raise EncodingError(f"{name} has another header than a plain file of {size} bytes")
    return size


def _header(name: str, size: int) -> bytes:
    """Return the ustar header of a plain file, readable by all, without owner and time."""
    fields = (
        (name.encode("ascii"), 100),
        (b"0000644", 8),
        (b"0000000", 8),
        (b"0000000", 8),
        (b"%011o" % size, 12),
        (b"00000000000", 12),
        (b" " * 8, 8),
        (b"0", 1),
        (b"", 100),
        (b"ustar\x0000", 8),
        (b"", 247),
    )
    block = b"".join(value.ljust(length, b"\0") for value, length in fields)
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]
