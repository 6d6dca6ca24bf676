"""Columns of Parquet files, whole, damaged and hostile."""

from __future__ import annotations

import contextlib
import io
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from clients.datasets.files.parquet import Column, column_names, read_columns, read_rows
from clients.datasets.own_columns import FileOptions
from clients.datasets.own_layouts import read_samples
from clients.datasets.registry import DATASETS
from ledger.protocol.errors import ConfigurationError

FIXTURES = Path(__file__).parents[2] / "fixtures" / "hugging_face"
COLUMNS = {"n": Column.WHOLE, "t": Column.TEXT, "i": Column.IMAGE}
IMAGES = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def table(**changed: Any) -> pa.Table:
    columns = {
        "n": pa.array([1, 2, 3], pa.int16()),
        "t": pa.array(["a", "b", "a"]),
        "i": pa.array([{"bytes": b"x", "path": None}] * 3, IMAGES),
    }
    return pa.table(columns | changed)


def written(path: Path, content: pa.Table, **options: Any) -> Path:
    pq.write_table(content, path, **options)
    return path


def all_rows(path: Path, columns: dict[str, Column] | None = None) -> dict[str, Any]:
    batches = list(read_rows(path, columns or COLUMNS))
    return {name: [entry for batch in batches for entry in batch[name]] for name in batches[0]}


@pytest.mark.parametrize("text", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}, {"row_group_size": 2}])
def test_columns_are_read_however_they_are_written(tmp_path: Path, options: Any, text: Any) -> None:
    content = table(t=pa.array(["a", "b", "a"], text))
    path = written(tmp_path / "t.parquet", content, **options)
    assert all_rows(path) == {"n": [1, 2, 3], "t": ["a", "b", "a"], "i": [b"x"] * 3}
    assert set(column_names(path)) == {"n", "t", "i"}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"n": ([1.5, 2, 3],)}, "n: must hold whole numbers, holds double"),
        ({"i": ([b"a", b"b", b"c"],)}, "i: must hold images, .*, holds binary"),
        ({"n": ([1, None, 3],)}, "n, from row 0: 1 entries are missing"),
        ({"i": ([None, {"bytes": None, "path": "a.png"}, None], IMAGES)}, "entries are missing"),
        ({"n": ([2**63, 0, 0], pa.uint64())}, r"not a readable \.parquet file"),
    ],
)
def test_a_column_of_wrong_type_or_with_gaps_is_refused(
    tmp_path: Path, changed: dict[str, Any], sentence: str
) -> None:
    arrays = {name: pa.array(*entries) for name, entries in changed.items()}
    path = written(tmp_path / "t.parquet", table(**arrays))
    with pytest.raises(ConfigurationError, match=rf"t\.parquet: .*{sentence}"):
        all_rows(path)


def test_a_missing_column_and_a_table_without_rows_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "t.parquet", table().drop_columns(["t"]))
    with pytest.raises(ConfigurationError, match="has the columns 'n', 'i'; must have one 't'"):
        all_rows(path)
    with pytest.raises(ConfigurationError, match="0 rows"):
        all_rows(written(path, table().slice(0, 0)))


def test_a_long_repeated_entry_is_refused_before_expansion(tmp_path: Path) -> None:
    entry = "x" * 2**20
    content = pa.table({"t": pa.DictionaryArray.from_arrays(pa.array([0] * 4096), [entry])})
    path = written(tmp_path / "t.parquet", content)
    assert path.stat().st_size < 2**20
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        with pytest.raises(ConfigurationError, match="an entry of 1048576 bytes, more than 65536"):
            all_rows(path, {"t": Column.TEXT})
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 64 * 2**20
    assert pa.default_memory_pool().max_memory() - before < 512 * 2**20


def repeated(entries: pa.Array, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows), entries)


def png(side: int) -> bytes:
    content = io.BytesIO()
    Image.fromarray(np.zeros((side, side), np.uint8)).save(content, "PNG")
    return content.getvalue()


def test_repeated_texts_and_images_of_own_data_are_refused_before_expansion(tmp_path: Path) -> None:
    """A table of some kilobytes would otherwise take 4 to 64 GiB."""
    rows, text = 4096, "x" * 2**20
    y = pa.array([0] * rows)
    images = pa.StructArray.from_arrays(
        [repeated(pa.array([png(4096)]), rows), pa.nulls(rows, pa.string())], ["bytes", "path"]
    )
    cases = {
        "text": repeated(pa.array([text]), rows),
        "words": pa.ListArray.from_arrays(
            pa.array(range(rows + 1), pa.int32()), repeated(pa.array([text]), rows)
        ),
        "image": images,
    }
    for name, column in cases.items():
        content = pa.table({name: column, "label": y})
        path = written(tmp_path / f"{name}.parquet", content, store_schema=False)
        assert path.stat().st_size < 2**21
        options = FileOptions(features=[name])
        before = pa.total_allocated_bytes()
        tracemalloc.start()
        try:
            with pytest.raises(ConfigurationError, match=r"rows hold|images of 16777216 bytes"):
                read_samples(path, options)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < 128 * 2**20, name
        assert pa.default_memory_pool().max_memory() - before < 512 * 2**20, name


def test_sizes_and_rows_are_bounded_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "t.parquet", table())
    for name, sentence in (
        ("MAX_GROUP_BYTES", r"row group 0 unpacks to .* bytes; there may be 0 \.\. 1"),
        ("MAX_ROWS", r"3 rows; there may be 1 \.\. 1"),
        ("MAX_FILE_BYTES", r"bytes, more than 1"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"clients.datasets.files.parquet.{name}", 1)
            with pytest.raises(ConfigurationError, match=sentence):
                all_rows(path)
    assert all_rows(path)["n"] == [1, 2, 3]


@pytest.mark.parametrize("name", ["femnist", "sent140"])
def test_any_damage_to_a_table_ends_in_a_refusal(tmp_path: Path, name: str) -> None:
    (source,) = (FIXTURES / name).rglob("*.parquet")
    chance, refused = np.random.default_rng(0), 0
    for _ in range(200):
        damaged = bytearray(source.read_bytes())
        for place in chance.integers(len(damaged), size=2):
            damaged[place] = chance.integers(256)
        path = tmp_path / "damaged.parquet"
        path.write_bytes(damaged)
        try:
            assert len(DATASETS[name].records(path).y) > 0
        except ConfigurationError:
            refused += 1
        with contextlib.suppress(ConfigurationError):
            list(read_columns(path, column_names(path)))
    assert refused > 100


def test_without_the_package_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigurationError, match=r"\.parquet files need the extra \[data\]"):
        column_names(tmp_path / "t.parquet")
