"""Blobs come back as they were put, or not at all."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.io.home import Disk
from ledger.protocol.errors import BlobError, BlobMissingError
from ledger.protocol.payload import Payload
from ledger.protocol.types import Digest
from ledger.storage.blobs import BlobStore, FolderBlobs, MemoryBlobs

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


@pytest.fixture(params=["memory", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    if request.param == "memory":
        return MemoryBlobs()
    return FolderBlobs(tmp_path / "blobs")


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


def test_what_was_hashed_is_stored_as_it_is_then(store: BlobStore) -> None:
    row = np.array([1.0, 2.0, 3.0], dtype="<f4")
    expected = row.tobytes()
    payload = Payload.of(row.data)
    store.put_payload(payload)
    row[:] = 0  # whoever owns the memory writes to it again
    assert store.get(payload.digest) == expected
    assert payload.digest == hashlib.sha256(expected).digest()


def test_a_digest_that_does_not_fit_is_found_out_by_every_reader(store: BlobStore) -> None:
    digest = Digest(hashlib.sha256(b"the model").digest())
    store.put_payload(Payload(b"another's", digest))
    with pytest.raises(BlobError, match=f"{digest.hex()} is damaged"):
        store.get(digest)
    store.put(b"the model")
    assert store.get(digest) == b"the model"


def test_a_blob_that_was_removed_is_missing_and_can_be_put_again(store: BlobStore) -> None:
    kept, digest = store.put(b"kept"), store.put(b"gone")
    store.remove(digest)
    store.remove(digest)
    assert store.has(kept)
    with pytest.raises(BlobMissingError, match=digest.hex()):
        store.get(digest)
    store.sync()  # nothing is left to make durable of what is gone
    assert store.put(b"gone") == digest
    assert store.get(digest) == b"gone"


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


def test_a_pipe_in_the_place_of_a_blob_holds_nobody_up(tmp_path: Path) -> None:
    store, digest = FolderBlobs(tmp_path), Digest(hashlib.sha256(b"x").digest())
    path = file_of(tmp_path, digest)
    path.parent.mkdir()
    os.mkfifo(path)
    assert not store.has(digest)
    with pytest.raises(BlobError, match=f"{digest.hex()} cannot be read: it is no file"):
        store.get(digest)
    store.put(b"x")
    assert store.get(digest) == b"x"


def test_a_device_in_the_place_of_a_blob_is_not_read(tmp_path: Path) -> None:
    store, digest = FolderBlobs(tmp_path), Digest(hashlib.sha256(b"x").digest())
    path = file_of(tmp_path, digest)
    path.parent.mkdir()
    path.symlink_to("/dev/zero")
    with pytest.raises(BlobError, match="it is no file"):
        store.get(digest)
    store.put(b"x")
    assert store.get(digest) == b"x"


def test_a_folder_in_the_place_of_a_blob_is_not_replaced(tmp_path: Path) -> None:
    digest = Digest(hashlib.sha256(b"x").digest())
    path = file_of(tmp_path, digest)
    path.mkdir(parents=True)
    with pytest.raises(BlobError, match=f"{path} cannot be written: Is a directory"):
        FolderBlobs(tmp_path).put(b"x")
    assert list(path.parent.iterdir()) == [path]


@dataclass
class Account(Disk):
    """A disk that tells what it was asked to sync."""

    files: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def sync_files(self, paths: Collection[Path]) -> None:
        self.files += sorted(path.name for path in paths)
        super().sync_files(paths)

    def sync_folder(self, folder: Path) -> None:
        self.folders.append(folder.name)
        super().sync_folder(folder)


def test_a_folder_in_the_place_of_a_blob_is_not_removed(tmp_path: Path) -> None:
    digest = Digest(hashlib.sha256(b"x").digest())
    path = file_of(tmp_path, digest)
    path.mkdir(parents=True)
    with pytest.raises(BlobError, match=f"{path} cannot be removed: "):
        FolderBlobs(tmp_path).remove(digest)
    assert path.is_dir()


def test_one_sync_makes_everything_durable_that_was_put(tmp_path: Path) -> None:
    disk = Account()
    store = FolderBlobs(tmp_path / "home" / "blobs", disk=disk)
    digests = sorted(store.put(bytes([number])).hex() for number in range(9))
    assert not disk.files
    store.sync()
    assert disk.files == digests
    shards = {digest[:2] for digest in digests}
    assert shards | {"blobs", "home", tmp_path.name} <= set(disk.folders)
    assert len(disk.folders) == len(set(disk.folders)), "each folder once"


def test_a_second_sync_has_only_to_do_what_is_new(tmp_path: Path) -> None:
    disk = Account()
    store = FolderBlobs(tmp_path, disk=disk)
    store.put(b"first")
    store.sync()
    disk.files.clear()
    disk.folders.clear()
    store.sync()
    assert (disk.files, disk.folders) == ([], [])
    second = store.put(b"second").hex()
    store.sync()
    assert disk.files == [second]
    assert set(disk.folders) == {second[:2], tmp_path.name}


def test_what_a_killed_process_has_put_is_synced_by_the_next(tmp_path: Path) -> None:
    digest = FolderBlobs(tmp_path).put(b"there already").hex()
    disk = Account()
    store = FolderBlobs(tmp_path, disk=disk)
    store.put(b"there already")
    store.sync()
    assert disk.files == [digest]
    assert {digest[:2], tmp_path.name} <= set(disk.folders)


def test_a_blob_that_cannot_be_made_durable_is_named_and_tried_again(tmp_path: Path) -> None:
    store = FolderBlobs(tmp_path)
    path = file_of(tmp_path, store.put(b"gone"))
    path.unlink()
    for _ in range(2):
        with pytest.raises(BlobError, match=f"{path} cannot be made durable: No such file"):
            store.sync()
    store.put(b"gone")
    store.sync()


def test_a_store_says_what_it_holds(tmp_path: Path) -> None:
    memory, folder = MemoryBlobs(), FolderBlobs(tmp_path / "blobs")
    assert not list(folder.digests())
    named = {store.put(data) for store in (memory, folder) for data in (b"one", b"other")}
    (tmp_path / "blobs" / "ab").mkdir(exist_ok=True)
    (tmp_path / "blobs" / "ab" / ".writing-abc").write_bytes(b"")
    (tmp_path / "blobs" / "ab" / ("cd" * 32)).write_bytes(b"")
    assert set(memory.digests()) == set(folder.digests()) == named
