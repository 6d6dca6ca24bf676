"""A file that a user names is written into, or replaced as a whole."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ledger.io.named_files import write_named, writing_named
from tests.disks import small_disk

# Each test makes a device of its own: a mistake must not replace one of the system's.


def test_an_existing_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_bytes(b"earlier")
    path.chmod(0o640)
    before = path.stat().st_ino
    write_named(path, b"data")
    assert path.read_bytes() == b"data"
    assert path.stat().st_ino != before
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_is_followed_and_stays(tmp_path: Path, exists: bool) -> None:
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    link.symlink_to("folder/target")
    if exists:
        target.write_bytes(b"earlier")
    write_named(link, b"data")
    assert link.is_symlink()
    assert target.read_bytes() == b"data"
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_a_device_is_written_into_also_behind_a_link(tmp_path: Path) -> None:
    device, link = tmp_path / "null", tmp_path / "link"
    os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    link.symlink_to(device)
    for path in (device, link):
        try:
            write_named(path, b"data")
        except PermissionError:
            pytest.skip("only root on a file system with devices makes devices")
    assert stat.S_ISCHR(device.lstat().st_mode)
    assert sorted(tmp_path.iterdir()) == [link, device]


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_named(pipe, b"data" * 100_000)
    reader.join()
    assert read == [b"data" * 100_000]
    assert stat.S_ISFIFO(pipe.lstat().st_mode)


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output_is_written_into_whatever_it_is(tmp_path: Path, name: str) -> None:
    # Behind a link of ours, so that an error here replaces only the link.
    link, out = tmp_path / "link", tmp_path / "out"
    link.symlink_to(name)
    code = (
        "import sys; from pathlib import Path\n"
        "from ledger.io.named_files import is_standard_output, write_named\n"
        "path = Path(sys.argv[1]); assert is_standard_output(path); write_named(path, b'data')"
    )
    command = [sys.executable, "-c", code, str(link)]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"data"
    out.write_bytes(b"earlier,")
    with out.open("ab") as appended:
        subprocess.run(command, stdout=appended, check=True)
    assert out.read_bytes() == b"earlier,data"
    assert link.is_symlink()


def test_what_cannot_be_written_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for path, code in (
        (tmp_path, errno.EISDIR),
        (tmp_path / "none" / "file", errno.ENOENT),
        (tmp_path / "loop", errno.ELOOP),
    ):
        with pytest.raises(OSError, match=r".") as caught:
            write_named(path, b"data")
        assert (caught.value.filename, caught.value.errno) == (str(path), code)
    assert [each.name for each in tmp_path.iterdir()] == ["loop"]


def test_a_file_whose_writing_fails_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"earlier")

    def fail() -> None:
        with writing_named(path) as file:
            file.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert path.read_bytes() == b"earlier"
    assert list(tmp_path.iterdir()) == [path]


def test_on_a_full_disk_the_earlier_file_is_kept(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 64 << 10) as disk:
        path = disk / "file"
        path.write_bytes(b"earlier")
        with pytest.raises(OSError, match=r".") as caught:
            write_named(path, bytes(128 << 10))
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
        assert path.read_bytes() == b"earlier"
        assert list(disk.iterdir()) == [path]
