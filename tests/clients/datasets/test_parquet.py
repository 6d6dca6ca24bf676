"""Columns of Parquet files, whole, damaged and hostile."""

from __future__ import annotations

import contextlib
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clients.datasets.files.parquet import Column, column_names, read_columns, read_rows
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
    """All batches joined."""
    batches = list(read_rows(path, columns or COLUMNS))
    return {name: [entry for batch in batches for entry in batch[name]] for name in batches[0]}


@pytest.mark.parametrize("text", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}, {"row_group_size": 2}])
def test_columns_are_read_however_they_are_written(
    tmp_path: Path, options: dict[str, Any], text: pa.DataType
) -> None:
    content = table(t=pa.array(["a", "b", "a"], text))
    path = written(tmp_path / "t.parquet", content, **options)
    assert all_rows(path) == {"n": [1, 2, 3], "t": ["a", "b", "a"], "i": [b"x"] * 3}
    assert set(column_names(path)) == {"n", "t", "i"}


def test_rows_come_some_thousands_at_a_time(tmp_path: Path) -> None:
    path = written(tmp_path / "t.parquet", pa.table({"n": np.arange(10_000)}))
    sizes = [len(batch["n"]) for batch in read_rows(path, {"n": Column.WHOLE})]
    assert sizes == [4096, 4096, 1808]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"n": ([1.5, 2, 3],)}, "n: must hold whole numbers, holds double"),
        ({"t": ([b"a", b"b", b"c"],)}, "t: must hold text, holds binary"),
        ({"i": ([b"a", b"b", b"c"],)}, "i: must hold images, .*, holds binary"),
        ({"n": ([1, None, 3],)}, "n, from row 0: 1 entries are missing"),
        ({"t": (["a", None, None],)}, "t, from row 0: 2 entries are missing"),
        (
            {"i": ([None, {"bytes": None, "path": "a.png"}, None], IMAGES)},
            "entries are missing",
        ),
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


def test_columns_of_any_type_are_read_as_written(tmp_path: Path) -> None:
    content = pa.table(
        {
            "t": pa.array(["a", "bb", "a"]),
            "large": pa.array(["a", "", "a"], pa.large_string()),
            "b": pa.array([b"a", b"", b"a"]),
            "w": pa.array([["a", "b"], ["a"], []]),
            "l": pa.array([[1.5], [2.5], [3.5]]),
            "d": pa.array([Decimal("1.5")] * 3),
            "i": pa.array([{"bytes": b"x", "path": None}] * 3, IMAGES),
        }
    )
    path = written(tmp_path / "t.parquet", content)
    (batch,) = read_columns(path, content.schema.names)
    assert batch.to_pydict() == content.to_pydict()
    assert batch.schema.types == content.schema.types


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


def test_a_truncated_table_is_refused_wherever_it_is_cut(tmp_path: Path) -> None:
    whole = written(tmp_path / "t.parquet", table()).read_bytes()
    path = tmp_path / "cut.parquet"
    for length in range(0, len(whole), 37):
        path.write_bytes(whole[:length])
        with pytest.raises(ConfigurationError, match=r"cut\.parquet: not a readable"):
            all_rows(path)


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
