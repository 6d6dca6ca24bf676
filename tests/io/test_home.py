"""Files come whole or not at all, in a home, under a lock, and where a user names one."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ledger.io.home import (
    DISK,
    WRITING,
    Disk,
    Home,
    read_file,
    run_lock,
    write_named,
    writing_named,
)
from ledger.protocol.errors import ConfigurationError
from tests.disks import fill, small_disk
from tests.patience import PATIENCE_SECONDS


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


def test_a_forked_process_syncs_with_threads_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [DISK.create(tmp_path, b"") for _ in range(8)]
    together = threading.Barrier(8)
    with monkeypatch.context() as patch:  # so that each thread is started
        patch.setattr(os, "fsync", lambda _: together.wait(PATIENCE_SECONDS))
        DISK.sync_files(paths)
    child = multiprocessing.get_context("fork").Process(target=DISK.sync, args=(paths,))
    child.start()
    child.join(PATIENCE_SECONDS)
    child.kill()
    assert child.exitcode == 0


def test_one_of_many_files_that_cannot_be_synced_is_an_error(tmp_path: Path) -> None:
    paths = [DISK.create(tmp_path, b"") for _ in range(20)]
    paths[13].unlink()
    with pytest.raises(FileNotFoundError) as caught:
        DISK.sync(paths)
    assert caught.value.filename == str(paths[13])


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
    with pytest.raises(OSError, match="it is not a file") as caught:
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
        "from ledger.io.home import is_standard_output, write_named\n"
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


HOLDER = """
import sys
from pathlib import Path
from ledger.io.home import run_lock
from ledger.io.home import Home

home, *sys.argv[:] = sys.argv[1:]
with run_lock(Home(Path(home)).run("run")):
    print("held", flush=True)
    sys.stdin.read()
"""


def holding(home: Path, *arguments: str) -> subprocess.Popen[bytes]:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(home), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    return holder


def test_a_held_run_is_refused_until_its_process_is_killed(tmp_path: Path) -> None:
    paths = Home(tmp_path).run("run")
    with holding(tmp_path, "/usr/bin/cmfl", "run", "--rpc-url", "https://secret@node") as holder:
        said = rf"^run 'run': process {holder.pid} \(cmfl run\) plays or deploys it"
        with pytest.raises(ConfigurationError, match=said), run_lock(paths):
            pass
        with run_lock(Home(tmp_path).run("other")):
            pass
        holder.kill()
        holder.wait()
    with run_lock(paths):
        assert list(paths.path.iterdir()) == [paths.lock]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("-c", "run"), "python"),
        (("/home/me/train.py", "password"), "train.py"),
        (("/lib/cmfl/__main__.py", "run"), "cmfl run"),
        (("/bin/cmfl", "--version"), "cmfl"),
    ],
)
def test_a_lock_names_the_program_and_no_arguments(
    tmp_path: Path, arguments: tuple[str, ...], named: str
) -> None:
    paths = Home(tmp_path).run("run")
    with holding(tmp_path, *arguments) as holder:
        assert paths.lock.read_text() == f"{holder.pid} {named}\n"
        holder.kill()


@pytest.mark.parametrize("content", ["", "\n", "x y\n", "12\n", "12 \x1b[2J\n", "12 cmfl run\n"])
def test_any_content_of_a_lock_file_is_a_short_sentence(tmp_path: Path, content: str) -> None:
    paths = Home(tmp_path).run("run")
    with run_lock(paths):
        paths.lock.write_text(content)
        with pytest.raises(ConfigurationError) as refused, run_lock(paths):
            pass
    named = "process 12" if content.startswith("12") else "another process"
    command = " (cmfl run)" if "run" in content else ""
    assert str(refused.value).startswith(f"run 'run': {named}{command} plays or deploys it; ")
    assert str(refused.value).isprintable()
