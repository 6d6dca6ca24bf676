"""No command writes its result over what a home keeps."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.cmfl.commands.conftest import SHARED, refusal, succeeds

if TYPE_CHECKING:
    from pathlib import Path

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
        assert line.startswith(
            f"--out {out}: lies in {kept.split('/', maxsplit=1)[0]} of the home "
        )
    assert files(home) == before


def test_a_report_is_not_written_over_the_chain(home: Path) -> None:
    path = home / "chain.sqlite"
    line = refusal("verify", "training", "--home", home, "--round", 1, "--report", path)
    assert line.startswith(f"--report {path}: lies in chain.sqlite of the home ")


def test_beside_a_homes_files_there_is_room(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs" / "round.bundle"  # a folder of that name makes no home
    out.parent.mkdir()
    succeeds("export", "bundle", "--home", home, "--round", 1, "--out", out)
    assert out.stat().st_size > 0


def linked(home: Path, folder: Path) -> Path:
    """Return another path of the same folder."""
    link = folder / "link"
    if not link.is_symlink():
        link.symlink_to(home, target_is_directory=True)
    return link
