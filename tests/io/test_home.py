"""A file comes into a home whole or not at all, and nothing half-written stays there."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ledger.io.home import DISK, WRITING, Disk, Home, read_file
from ledger.protocol.errors import ConfigurationError
from tests.disks import fill, small_disk

if TYPE_CHECKING:
    from pathlib import Path


class BrokenDisk(Disk):
    """A disk on which nothing gets its name."""

    def rename(self, path: Path, target: Path) -> None:  # noqa: ARG002 - whatever it is
        raise OSError(errno.EIO, "Input/output error")


# Files.


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_written_into_folders_that_are_made(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "a" / "b" / "file"
    DISK.write_whole(path, b"first", durable=durable)
    DISK.write_whole(path, b"second", durable=durable)
    assert path.read_bytes() == b"second"
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with pytest.raises(OSError, match="Input/output error") as caught:
        BrokenDisk().write_whole(path, b"after")
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_reported_with_the_path(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        filling, path = fill(disk, 0), disk / "file"
        with pytest.raises(OSError, match="No space left") as caught:
            DISK.write_whole(path, bytes(2000))
        assert caught.value.filename == str(path)
        assert list(disk.iterdir()) == [filling]
    path = tmp_path / "file"
    path.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as caught:
        DISK.append(path, b"x")
    assert caught.value.filename == str(path)


def test_a_month_of_folders_takes_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mail has new folders in each round, and nobody ever writes to the old ones again.
    monkeypatch.setattr("ledger.io.home._MOST_NAMED", 20)
    disk = Disk()
    for number in range(30):
        disk.write_whole(tmp_path / "mail" / str(number) / "1" / "x", b"")
    assert len(disk._named) <= 20


@pytest.mark.parametrize(("code", "goes"), [(errno.EINVAL, True), (errno.EIO, False)])
def test_only_a_file_system_that_cannot_sync_folders_is_excused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, goes: bool
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    if goes:
        DISK.sync_folder(tmp_path)
        return
    with pytest.raises(OSError, match="Input/output error") as caught:
        DISK.sync_folder(tmp_path)
    assert caught.value.filename == str(tmp_path)


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_file(path, 5) == read_file(path, 4) == b"12345"
    assert read_file(path, 2) == b"123"


def test_a_file_growing_while_read_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    true = os.fstat

    def earlier(descriptor: int) -> os.stat_result:
        return os.stat_result(
            [2 if at == stat.ST_SIZE else v for at, v in enumerate(true(descriptor))]
        )

    monkeypatch.setattr(os, "fstat", earlier)
    assert [read_file(path, limit) for limit in (1, 2, 3, 9)] == [b"12", b"123", b"1234", b"12345"]


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "it"
    {"pipe": os.mkfifo, "folder": os.mkdir, "device": lambda p: p.symlink_to("/dev/zero")}[kind](
        path
    )
    with pytest.raises(OSError, match="it is no file") as caught:
        read_file(path, 10)
    assert caught.value.filename == str(path)


# Writers.


def left_overs(home: Home) -> list[Path]:
    paths = [
        home.path / f"{WRITING}1",
        home.blobs / "ab" / f"{WRITING}2",
        home.run("one").path / f"{WRITING}3",
    ]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return paths


def test_the_next_writer_removes_what_a_killed_one_had_begun(tmp_path: Path) -> None:
    home = Home(tmp_path)
    kept = home.blobs / "ab" / "abcd"
    paths = left_overs(home)
    kept.touch()
    with home.writing():
        assert not any(path.exists() for path in paths)
        assert kept.exists()


def test_a_writer_does_not_remove_what_another_is_writing(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with home.writing():
        paths = left_overs(home)
        # Another open of the same file is another holder, as another process would be.
        with home.writing():
            assert all(path.exists() for path in paths)
    with home.writing():
        assert not any(path.exists() for path in paths)


def test_a_killed_writer_leaves_no_lock(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from ledger.io.home import Home\n"
        "with Home(Path(sys.argv[1])).writing(): os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert done.returncode == -9
    with (tmp_path / "home.lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


# Names.


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", ".hidden", "a" * 65, "ä"])
def test_what_is_no_plain_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="letters, digits"):
        Home(tmp_path).run(name)
