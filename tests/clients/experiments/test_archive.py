"""Packed rows are read as loose ones are, and are unpacked before anything is added."""

from __future__ import annotations

import tarfile
from random import Random
from typing import TYPE_CHECKING

import pytest

from clients.experiments.archive import archive_path, pack, read_stored, unpack
from clients.experiments.execution.row_store import RowStore
from clients.experiments.rows import append_row, read_rows
from ledger.protocol.errors import ConfigurationError
from tests.clients.experiments.made_up import constant

if TYPE_CHECKING:
    from pathlib import Path

REPORT = "normal/cell/report.json"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Return a folder with rows of one experiment and a file of one of its runs."""
    for row in constant("CMFL-I", (0.8, 0.9), experiment="normal"):
        append_row(tmp_path / "normal.jsonl", row)
    (tmp_path / REPORT).parent.mkdir(parents=True)
    (tmp_path / REPORT).write_text("{}")
    return tmp_path


def test_packed_rows_are_the_same_rows(out: Path) -> None:
    loose = read_rows(out / "normal.jsonl")
    archive = pack(out, "normal")
    assert [path.name for path in out.iterdir()] == [archive.name]
    assert read_rows(out / "normal.jsonl") == loose
    assert read_stored(out, REPORT, 10) == b"{}"


def test_the_home_of_a_cell_that_was_cut_off_is_not_packed(out: Path) -> None:
    cut_off = out / "normal" / "other" / "home" / "chain.sqlite"
    cut_off.parent.mkdir(parents=True)
    cut_off.write_bytes(b"half a chain")
    pack(out, "normal")
    unpack(out, "normal")
    files = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert files == {"normal.tar.xz", "normal.jsonl", REPORT}


def test_the_same_rows_are_the_same_archive(out: Path) -> None:
    first = pack(out, "normal").read_bytes()
    unpack(out, "normal")
    assert pack(out, "normal").read_bytes() == first


def test_writing_unpacks_first(out: Path) -> None:
    loose = (out / "normal.jsonl").read_bytes()
    pack(out, "normal")
    store = RowStore(out, "normal")
    with store.writing():
        assert store.path.read_bytes() == loose
    assert (out / REPORT).read_text() == "{}"


def test_loose_rows_go_before_packed_ones(out: Path) -> None:
    pack(out, "normal")
    append_row(out / "normal.jsonl", constant("Krum", (0.5,), experiment="normal")[0])
    unpack(out, "normal")
    assert [row.method for row in read_rows(out / "normal.jsonl").cells] == ["Krum"]


def test_a_damaged_archive_is_refused(out: Path) -> None:
    archive = pack(out, "normal")
    archive.write_bytes(archive.read_bytes()[:100])
    with pytest.raises(ConfigurationError, match="cannot be unpacked"):
        read_rows(out / "normal.jsonl")
    archive_path(out, "grids").write_bytes(b"no archive")
    with pytest.raises(ConfigurationError, match="cannot be unpacked"):
        unpack(out, "grids")


def test_rows_of_an_archive_that_is_cut_off_are_not_left_on_disk(out: Path) -> None:
    (out / "normal.jsonl").write_text(Random(0).randbytes(100_000).hex())
    archive = pack(out, "normal")
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    with pytest.raises(ConfigurationError, match="cannot be unpacked"):
        unpack(out, "normal")
    assert [*out.iterdir()] == [archive], "half of the rows would be taken for all of them"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("../elsewhere", tarfile.REGTYPE),
        ("normal/../../elsewhere", tarfile.REGTYPE),
        ("grids.jsonl", tarfile.REGTYPE),
        ("normal/link", tarfile.SYMTYPE),
    ],
)
def test_what_is_no_file_of_the_experiment_is_not_unpacked(
    out: Path, name: str, kind: bytes
) -> None:
    pack(out, "normal")
    with tarfile.open(archive_path(out, "normal"), "w:xz") as packed:
        packed.addfile(tarfile.TarInfo("normal.jsonl"))
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, "/etc/passwd"
        packed.addfile(member)
    with pytest.raises(ConfigurationError, match="is no file of normal"):
        unpack(out, "normal")
    assert [*out.iterdir()] == [archive_path(out, "normal")]


def test_no_more_is_unpacked_than_the_bound(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (out / "normal" / "cell" / "large.bin").write_bytes(bytes(2**24))
    archive = pack(out, "normal")
    assert archive.stat().st_size < 2**16
    monkeypatch.setattr("clients.experiments.archive.MAX_UNPACKED_BYTES", 2**20)
    with pytest.raises(ConfigurationError, match="holds more than 1048576 bytes"):
        unpack(out, "normal")
    assert [path.name for path in out.iterdir()] == [archive.name]
    monkeypatch.setattr("clients.experiments.archive.MAX_UNPACKED_BYTES", 2**25)
    unpack(out, "normal")
    assert (out / "normal" / "cell" / "large.bin").stat().st_size == 2**24
