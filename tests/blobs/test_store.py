"""Blobs come back as they were put, or not at all."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.blobs.store import BlobStore, FolderBlobs, MemoryBlobs
from ledger.protocol.errors import BlobError, BlobMissingError
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["memory", "folder", "durable folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    if request.param == "memory":
        return MemoryBlobs()
    return FolderBlobs(tmp_path / "blobs", durable=request.param.startswith("durable"))


def file_of(folder: Path, digest: Digest) -> Path:
    return folder / digest.hex()[:2] / digest.hex()


def test_a_blob_is_found_under_its_sha256(store: BlobStore) -> None:
    digest = store.put(b"update")
    assert digest == hashlib.sha256(b"update").digest()
    assert store.has(digest)
    assert store.get(digest) == b"update"


def test_a_missing_blob_is_named(store: BlobStore) -> None:
    digest = Digest(hashlib.sha256(b"never put").digest())
    assert not store.has(digest)
    with pytest.raises(BlobMissingError, match=digest.hex()):
        store.get(digest)


def test_a_blob_over_the_readers_bound_is_refused(store: BlobStore) -> None:
    digest = store.put(b"12345")
    assert store.get(digest, limit=5) == b"12345"
    with pytest.raises(BlobError, match="larger than the 4 bytes"):
        store.get(digest, limit=4)


def test_putting_twice_changes_nothing(store: BlobStore) -> None:
    assert store.put(b"same") == store.put(b"same")


@given(data=st.binary(min_size=1, max_size=64), place=st.integers(0, 63), bit=st.integers(0, 7))
def test_any_flipped_bit_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, place: int, bit: int
) -> None:
    folder = tmp_path_factory.mktemp("blobs")
    store = FolderBlobs(folder)
    digest = store.put(data)
    damaged = bytearray(data)
    damaged[place % len(data)] ^= 1 << bit
    file_of(folder, digest).write_bytes(damaged)
    with pytest.raises(BlobError, match="damaged"):
        store.get(digest)


def test_a_damaged_blob_is_mended_by_putting_it_again(tmp_path: Path) -> None:
    store = FolderBlobs(tmp_path)
    digest = store.put(b"right")
    file_of(tmp_path, digest).write_bytes(b"wrong")
    store.put(b"right")
    assert store.get(digest) == b"right"


def test_no_half_written_file_is_left_behind(tmp_path: Path) -> None:
    store = FolderBlobs(tmp_path)
    store.put(b"whole")
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".writing")]


def test_a_folder_that_cannot_be_written_is_a_plain_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BlobError, match="cannot be written"):
        FolderBlobs(tmp_path / "file").put(b"data")


def test_a_folder_in_the_place_of_a_blob_is_a_plain_error(tmp_path: Path) -> None:
    digest = Digest(hashlib.sha256(b"x").digest())
    file_of(tmp_path, digest).mkdir(parents=True)
    with pytest.raises(BlobError, match="cannot be read"):
        FolderBlobs(tmp_path).get(digest)
