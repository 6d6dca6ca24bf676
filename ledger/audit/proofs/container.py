"""The container of a bundle: a plain tar (ustar) whose parts determine every byte.

Every tar reader can open one, for example `tar -xf` and `sha256sum`. The reader here compares what
it reads with what would have been written: it refuses another header, order, padding or ending.
There is no compression, no link, no folder and no name except `bundle.json` and `blobs/` with a
sha256, so that nothing can be larger or elsewhere than it seems.
"""

from __future__ import annotations

import hashlib
import re
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ledger.io.home import open_file, writing_named
from ledger.protocol import types
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import BlobError, BlobMissingError, EncodingError
from ledger.storage.blobs import MAX_BLOB_BYTES, BlobReader

MANIFEST = "bundle.json"
MAX_MANIFEST_BYTES = 64 << 20
MAX_BLOBS = 10_000
BLOCK = 512
_AT_ONCE = 1 << 20
_BLOB = re.compile(f"blobs/({types.BARE})")
_SIZE = re.compile(rb"[0-7]{11}\0")
_END = bytes(2 * BLOCK)


class BundleFile:
    """A bundle that is open for reading: its `bundle.json`, and the positions of its blobs."""

    def __init__(self, file: IO[bytes]) -> None:
        """Read a bundle once, and hash every blob; the caller keeps the file open."""
        self._file = file
        self._parts: dict[types.Digest, tuple[int, int]] = {}  # where it starts, and its size
        size = _size_of(self._exactly(BLOCK), MANIFEST, MAX_MANIFEST_BYTES)
        self.manifest = self._exactly(size)
        self._padding(size)
        previous = ""
        while (name := self._read_blob(previous)) is not None:
            previous = name
            if len(self._parts) > MAX_BLOBS:
                raise EncodingError(f"a bundle may have at most {MAX_BLOBS} blobs")

    def get(self, digest: types.Digest, limit: int = MAX_BLOB_BYTES) -> bytes:
        if digest not in self._parts:
            raise BlobMissingError(f"blob {digest.hex()} is not in the bundle")
        start, size = self._parts[digest]
        if size > limit:
            raise BlobError(f"blob {digest.hex()} is larger than the {limit} bytes it may have")
        self._file.seek(start)
        data = self._file.read(size)
        if sha256(data) != digest:
            raise BlobError(f"blob {digest.hex()} has changed since the bundle was opened")
        return data

    def has(self, digest: types.Digest) -> bool:
        return digest in self._parts

    def digests(self) -> Iterator[types.Digest]:
        yield from self._parts

    def _read_blob(self, previous: str) -> str | None:
        block = self._exactly(BLOCK)
        if block == bytes(BLOCK):
            if self._file.read(BLOCK + 1) != bytes(BLOCK):
                raise EncodingError("a bundle must end with exactly two empty blocks")
            return None
        name = block[:100].rstrip(b"\0").decode("ascii", "replace")
        match = _BLOB.fullmatch(name)
        if match is None:
            raise EncodingError(f"{name!r:.120} is not a part's name; must be blobs/ and a sha256")
        if name <= previous:
            raise EncodingError(f"{name} comes after {previous}; names must ascend")
        size = _size_of(block, name, MAX_BLOB_BYTES)
        digest, hashed = types.Digest(bytes.fromhex(match[1])), hashlib.sha256()
        self._parts[digest] = self._file.tell(), size
        for start in range(0, size, _AT_ONCE):
            hashed.update(self._exactly(min(size - start, _AT_ONCE)))
        if hashed.digest() != digest:
            raise EncodingError(f"the sha256 of {name} differs from its name")
        self._padding(size)
        return name

    def _padding(self, size: int) -> None:
        length = -size % BLOCK
        if self._exactly(length) != bytes(length):
            raise EncodingError("a part must be padded to whole blocks with zeros")

    def _exactly(self, length: int) -> bytes:
        data = self._file.read(length)
        if len(data) != length:
            raise EncodingError(f"the bundle ends {length - len(data)} bytes too early")
        return data


@contextmanager
def open_bundle(path: Path) -> Iterator[BundleFile]:
    """Open a bundle's file for reading: a pipe or a device under its name does not block."""
    with open_file(path) as file:
        yield BundleFile(file)


def write_container(
    path: Path, manifest: bytes, digests: Iterable[types.Digest], blobs: BlobReader
) -> None:
    """Write a bundle's file, whole or not at all; an existing file is replaced."""
    with writing_named(path) as file:
        for part in container_parts(manifest, digests, blobs):
            file.write(part)


def container_parts(
    manifest: bytes, digests: Iterable[types.Digest], blobs: BlobReader
) -> Iterator[bytes]:
    """Yield a bundle's bytes in their order; one blob at a time is held."""
    if len(manifest) > MAX_MANIFEST_BYTES:
        raise EncodingError(
            f"the manifest has {len(manifest)} bytes; at most {MAX_MANIFEST_BYTES} are allowed"
        )
    yield _header(MANIFEST, len(manifest)) + manifest + bytes(-len(manifest) % BLOCK)
    for digest in sorted(set(digests)):
        data = blobs.get(digest)
        yield _header(f"blobs/{digest.hex()}", len(data))
        yield data
        yield bytes(-len(data) % BLOCK)
    yield _END


def _size_of(block: bytes, name: str, most: int) -> int:
    field = block[124:136]
    if not _SIZE.fullmatch(field):
        raise EncodingError(f"{name} has no size in eleven octal digits")
    size = int(field[:-1], 8)
    if size > most:
        raise EncodingError(f"{name} has {size} bytes; at most {most} are allowed")
    if block != _header(name, size):
        raise EncodingError(f"{name} has another header than a plain file of {size} bytes")
    return size


def _header(name: str, size: int) -> bytes:
    header = tarfile.TarInfo(name)
    header.size = size
    return header.tobuf(tarfile.USTAR_FORMAT, "ascii")
