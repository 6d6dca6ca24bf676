"""No command writes its result over what a home keeps."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cmfl.commands.conftest import SHARED, cmfl, refusal, succeeds
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from tests.processes import Forks

pytestmark = SHARED

COMMANDS = {
    "bundle": ("export", "bundle", "--round", 1),
    "proof": ("export", "proof", "--round", 1, "--client", 0),
    "attestation": ("export", "attestation"),
    "mlbom": ("export", "mlbom"),
    "crate": ("export", "crate"),
    "model": ("model", "export"),
}


def files(folder: Path) -> dict[str, tuple[int, int]]:
    stats = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
    return {str(path): (stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("kept", ["chain.sqlite", "chain.sqlite-wal", "runs/new", "blobs/ab/new"])
def test_a_homes_files_are_no_output(
    home: Path, command: tuple[object, ...], kept: str, tmp_path: Path
) -> None:
    before = files(home)
    for out in (home / kept, os.path.relpath(home / kept), linked(home, tmp_path) / kept):
        line = refusal(*command, "--home", home, "--out", out)
        assert line.startswith(f"--out {out}: is in {kept.split('/', maxsplit=1)[0]} of the home ")
    assert files(home) == before


def test_a_report_is_not_written_over_the_chain(home: Path) -> None:
    path = home / "chain.sqlite"
    line = refusal("verify", "training", "--home", home, "--round", 1, "--report", path)
    assert line.startswith(f"--report {path}: is in chain.sqlite of the home ")


def test_beside_a_homes_files_there_is_room(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs" / "round.bundle"  # a folder of that name makes no home
    out.parent.mkdir()
    succeeds("export", "bundle", "--home", home, "--round", 1, "--out", out)
    assert out.stat().st_size > 0


RESULTS = {name: (*words, "--out") for name, words in COMMANDS.items() if name != "crate"} | {
    "audit": ("audit", "--jobs", 1, "--report"),
    "training": ("verify", "training", "--round", 1, "--sample", 1, "--report"),
}


@pytest.mark.parametrize("command", RESULTS.values(), ids=RESULTS)
def test_a_pipe_is_written_into_and_a_link_is_followed(
    home: Path, command: tuple[object, ...], tmp_path: Path
) -> None:
    words, option = command[:-1], command[-1]
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    target.write_bytes(b"earlier")
    link.symlink_to(target)
    os.mkfifo(pipe)
    assert cmfl(*words, "--home", home, option, link).code in {0, 1, 3}
    assert link.is_symlink()
    assert target.read_bytes() not in {b"", b"earlier"}
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    assert cmfl(*words, "--home", home, option, pipe).code in {0, 1, 3}
    reader.join(PATIENCE_SECONDS)
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    if command[0] != "verify":  # a report of repeated training has its time
        assert read == [target.read_bytes()]
    assert sorted(tmp_path.iterdir()) == [link, pipe, target]


def test_the_proof_on_standard_output_is_alone_there(home: Path, forks: Forks) -> None:
    proof = ("export", "proof", "--home", home, "--round", 1, "--client", 0)
    with forks.start(*proof, "--out", "/proc/self/fd/1") as started:
        out, err = started.communicate()
    assert json.loads(out)
    assert "/proc/self/fd/1: " in err
    report = ("audit", "--home", home, "--report", "/proc/self/fd/1", "--json")
    with forks.start(*report) as started:
        assert started.communicate()[0] == ""
    assert started.returncode == 2


def linked(home: Path, folder: Path) -> Path:
    link = folder / "link"
    if not link.is_symlink():
        link.symlink_to(home, target_is_directory=True)
    return link
