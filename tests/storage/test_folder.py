"""Files of a folder: atomic, durable when they should be, and nothing else is taken for one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ledger.io.home import Disk
from ledger.protocol.errors import BlobError
from ledger.protocol.types import Digest
from ledger.storage.blobs import FolderBlobs, MemoryBlobs

X = Digest(hashlib.sha256(b"x").digest())


def file_of(folder: Path, digest: Digest) -> Path:
    return folder / digest.hex()[:2] / digest.hex()


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BlobError, match="cannot be written"):
        FolderBlobs(tmp_path / "file").put(b"data")


def test_a_folder_in_the_place_of_a_blob_stays(tmp_path: Path) -> None:
    store, path = FolderBlobs(tmp_path), file_of(tmp_path, X)
    path.mkdir(parents=True)
    with pytest.raises(BlobError, match="cannot be read"):
        store.get(X)
    with pytest.raises(BlobError, match=f"{path} cannot be written: Is a directory"):
        store.put(b"x")
    with pytest.raises(BlobError, match=f"{path} cannot be removed: "):
        store.remove(X)
    assert list(path.parent.iterdir()) == [path]


def test_pipes_and_devices_in_place_of_blobs_are_not_read(tmp_path: Path) -> None:
    store, path = FolderBlobs(tmp_path), file_of(tmp_path, X)
    path.parent.mkdir()
    for is_pipe in (True, False):
        if is_pipe:
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero")
        assert not store.has(X)
        with pytest.raises(BlobError, match=f"{X.hex()} cannot be read: it is not a file"):
            store.get(X)
        store.put(b"x")
        assert store.get(X) == b"x"
        store.remove(X)


@dataclass
class RecordingDisk(Disk):
    """A disk that records what it was asked to sync."""

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


def test_one_sync_makes_every_blob_durable(tmp_path: Path) -> None:
    disk = RecordingDisk()
    store = FolderBlobs(tmp_path / "home" / "blobs", disk=disk)
    digests = sorted(store.put(bytes([number])).hex() for number in range(9))
    assert not disk.files
    store.sync()
    assert disk.files == digests
    shards = {digest[:2] for digest in digests}
    assert shards | {"blobs", "home", tmp_path.name} <= set(disk.folders)
    assert len(disk.folders) == len(set(disk.folders)), "each folder once"


def test_blobs_of_a_killed_process_are_synced_by_the_next(tmp_path: Path) -> None:
    digest = FolderBlobs(tmp_path).put(b"there already").hex()
    disk = RecordingDisk()
    store = FolderBlobs(tmp_path, disk=disk)
    store.put(b"there already")
    store.sync()
    assert disk.files == [digest]
    assert {digest[:2], tmp_path.name} <= set(disk.folders)


def synced_with(data: bytes, store: FolderBlobs, disk: RecordingDisk) -> tuple[str, set[str]]:
    """Put a blob and sync; return the name of its folder, and the folders that were synced."""
    disk.folders.clear()
    folder = store.put(data).hex()[:2]
    store.sync()
    return folder, set(disk.folders)


def test_a_durable_name_of_a_folder_is_not_synced_again(tmp_path: Path) -> None:
    disk = RecordingDisk()
    store = FolderBlobs(tmp_path / "blobs", disk=disk)
    folder, synced = synced_with(b"first", store, disk)
    assert {folder, "blobs", tmp_path.name} <= synced
    assert synced_with(b"first", store, disk) == (folder, {folder})
    other, synced = synced_with(b"second", store, disk)
    assert synced == {other, "blobs"}


@pytest.mark.parametrize("makes", [True, False], ids=["this process", "another process"])
def test_a_folder_that_replaces_another_is_named_durably(tmp_path: Path, makes: bool) -> None:
    disk = RecordingDisk()
    store = FolderBlobs(tmp_path / "blobs", disk=disk)
    folder, _ = synced_with(b"first", store, disk)
    path = tmp_path / "blobs" / folder
    path.rename(tmp_path / "aside")
    if not makes:
        path.mkdir()
    assert synced_with(b"first", store, disk) == (folder, {folder, "blobs"})


def test_names_are_synced_where_a_link_leads(tmp_path: Path) -> None:
    disk, link = RecordingDisk(), tmp_path / "link"
    (tmp_path / "real" / "blobs").mkdir(parents=True)
    link.symlink_to(tmp_path / "real" / "blobs")
    folder, synced = synced_with(b"first", FolderBlobs(link, disk=disk), disk)
    assert {folder, "blobs", "real", tmp_path.name} <= synced
    assert "link" not in synced


def test_a_failed_sync_names_the_blob_and_is_repeated(tmp_path: Path) -> None:
    store = FolderBlobs(tmp_path)
    path = file_of(tmp_path, store.put(b"gone"))
    path.unlink()
    for _ in range(2):
        with pytest.raises(BlobError, match=f"{path} cannot be made durable: No such file"):
            store.sync()
    store.put(b"gone")
    store.sync()


def test_a_store_enumerates_its_blobs(tmp_path: Path) -> None:
    memory, folder = MemoryBlobs(), FolderBlobs(tmp_path / "blobs")
    assert not list(folder.digests())
    digests = {store.put(data) for store in (memory, folder) for data in (b"one", b"other")}
    (tmp_path / "blobs" / "ab").mkdir(exist_ok=True)
    (tmp_path / "blobs" / "ab" / ".writing-abc").write_bytes(b"")
    (tmp_path / "blobs" / "ab" / ("cd" * 32)).write_bytes(b"")
    assert set(memory.digests()) == set(folder.digests()) == digests
