"""Rows are read back as they were written, packed ones too; damage is refused."""

from __future__ import annotations

import tarfile
from io import BytesIO
from math import inf, nan
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.experiments import rows as module
from clients.experiments.rows import (
    CellSeconds,
    ChoiceRow,
    ExperimentRows,
    TrialRow,
    append_row,
    cut_torn_line,
    encode_row,
    final_of,
    pack,
    read_rows,
    read_stored,
    round_values,
    unpack,
)
from clients.experiments.run import RowStore
from ledger.protocol.errors import ConfigurationError
from tests.clients.experiments.made_up import EVIDENCE, cell, constant

CELL = cell(
    "a",
    0,
    (0.5, 0.25),
    experiment="mini",
    axes={"omega": "40", "alpha": "10"},
    bytes={"model": 2600, "by_round": [1, 2]},
    ledger=EVIDENCE,
    extra={"committee": 4},
    malicious_members=(0, 1),
)
TRIAL = TrialRow(
    cell="tuning",
    experiment="mini",
    method="a",
    condition="clean",
    axes={},
    seed=100,
    digest="0x01",
    factor=0.5,
    learning_rate=0.25,
    protocol=3,
    final=0.4,
    seconds=CellSeconds(wall=1.0, cpu=0.5),
)
CHOICE = ChoiceRow(
    experiment="mini",
    method="a",
    factor=0.5,
    finals={"0.5": 0.4, "1": 0.3},
    seeds=(100, 101),
    digest="0x02",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mini.jsonl"


def test_every_kind_of_row_is_read_as_it_was_written(path: Path) -> None:
    for one in (TRIAL, CHOICE, CELL):
        append_row(path, one)
    assert read_rows(path) == ExperimentRows((CELL,), (TRIAL,), (CHOICE,))


@given(cut=st.integers(1, len(encode_row(CELL)) - 1))
def test_a_half_written_line_is_no_row_and_is_removed(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("rows") / "mini.jsonl"
    whole = encode_row(TRIAL)
    path.write_bytes(whole + encode_row(CELL)[:cut])
    assert read_rows(path) == ExperimentRows(trials=(TRIAL,))
    assert cut_torn_line(path)
    assert path.read_bytes() == whole
    assert not cut_torn_line(path)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{}", "line 2: not a row (: Unable to extract tag using discriminator 'row'"),
        (b'{"row": "cell"}', "line 2: not a row (cell.cell: Field required"),
        (b"nonsense", "line 2: not a row (: Invalid JSON"),
        (encode_row(CELL).replace(b"0.375", b"NaN").strip(), "line 2: not a row (cell."),
        (encode_row(CELL).replace(b'"seed": 0', b'"seed": "0"').strip(), "cell.seed: Input should"),
        (encode_row(CELL).replace(b'"passed"', b'"fine"').strip(), "cell.ledger.verdict: Input sh"),
        (encode_row(CELL).replace(b'"rounds": 2', b'"rounds": 3').strip(), "line 2: not a row; ac"),
        (encode_row(CELL).replace(b'"mini"', b'"grids"').strip(), "is a row of experiment 'grids'"),
        (
            encode_row(CELL).replace(b'"protocol": 3', b'"protocol": 2').strip(),
            "a row of version 2",
        ),
        (encode_row(CELL).replace(b'"protocol": 3, ', b"").strip(), "a row of an earlier version"),
        (encode_row(TRIAL).strip(), "line 2: repeats line 1; remove one"),
    ],
)
def test_an_invalid_whole_line_is_refused_by_its_number(path: Path, line: bytes, said: str) -> None:
    path.write_bytes(encode_row(TRIAL) + line + b"\n")
    with pytest.raises(ConfigurationError) as refused:
        read_rows(path)
    assert said in str(refused.value)


def test_a_large_file_is_neither_read_nor_cut(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode_row(TRIAL) + b"half"
    path.write_bytes(data)
    monkeypatch.setattr(module, "MAX_ROWS_BYTES", 10)
    for act in (read_rows, cut_torn_line):
        with pytest.raises(ConfigurationError, match="over 10 bytes"):
            act(path)
    assert path.read_bytes() == data


def test_final_accuracy_is_the_mean_of_five_measured_rounds() -> None:
    assert final_of([0.9, 0.1, None, 0.2, 0.3, None, 0.4, 0.5]) == 0.3
    assert final_of([0.25, None, 0.75]) == 0.5
    assert final_of([None]) is None
    assert final_of([]) is None


@given(st.lists(st.none() | st.floats(-1e9, 1e9) | st.sampled_from([nan, inf, -inf])))
def test_what_is_kept_of_numbers_is_finite_and_as_long(values: list[float | None]) -> None:
    kept = round_values(values)
    assert len(kept) == len(values)
    for one, value in zip(kept, values, strict=True):
        is_number = value is not None and abs(value) < inf
        assert (one is not None) == is_number
        if one is not None and value is not None:
            assert abs(one - value) <= 5.1e-7 * max(1.0, abs(value) * 1e-6)


REPORT = "normal/cell/report.json"


@pytest.fixture
def out(tmp_path: Path) -> Path:
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
    (out / "grids.tar.xz").write_bytes(b"no archive")
    with pytest.raises(ConfigurationError, match="cannot be unpacked"):
        unpack(out, "grids")


def test_a_long_header_of_an_archive_is_not_read(out: Path) -> None:
    name = tarfile.TarInfo("name")
    name.type, name.size = tarfile.GNUTYPE_LONGNAME, 2**17
    with tarfile.open(out / "grids.tar.xz", "w:xz") as archive:
        archive.addfile(name, BytesIO(bytes(name.size)))
    with pytest.raises(ConfigurationError, match="a header of 131072 bytes"):
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
def test_what_is_no_file_of_its_own_is_not_unpacked(out: Path, name: str, kind: bytes) -> None:
    pack(out, "normal")
    with tarfile.open(out / "normal.tar.xz", "w:xz") as packed:
        packed.addfile(tarfile.TarInfo("normal.jsonl"))
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, "/etc/passwd"
        packed.addfile(member)
    with pytest.raises(ConfigurationError, match="is not a file of normal"):
        unpack(out, "normal")
    assert [*out.iterdir()] == [out / "normal.tar.xz"]


def test_no_more_is_unpacked_than_the_bound(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (out / "normal" / "cell" / "large.bin").write_bytes(bytes(2**24))
    archive = pack(out, "normal")
    assert archive.stat().st_size < 2**16
    monkeypatch.setattr("clients.experiments.rows.MAX_UNPACKED_BYTES", 2**20)
    with pytest.raises(ConfigurationError, match="holds more than 1048576 bytes"):
        unpack(out, "normal")
    assert [path.name for path in out.iterdir()] == [archive.name]
    monkeypatch.setattr("clients.experiments.rows.MAX_UNPACKED_BYTES", 2**25)
    unpack(out, "normal")
    assert (out / "normal" / "cell" / "large.bin").stat().st_size == 2**24
