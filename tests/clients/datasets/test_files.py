"""Arrays, tensors, rows, columns and vectors out of files: whole, damaged and hostile."""

from __future__ import annotations

import base64
import io
import json
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

from clients.datasets.files.archives import (
    ArrayRule,
    array_names,
    read_arrays,
    stated_forms,
)
from clients.datasets.files.tables import Column, column_names, read_csv, read_lines, read_rows
from clients.datasets.own import OwnOptions, read_own
from clients.datasets.own_columns import FileOptions
from clients.datasets.own_reading import read_samples
from clients.datasets.texts import read_glove
from ledger.protocol.errors import ConfigurationError
from tests.faults import times


def test_a_member_never_unpacks_beyond_its_header(tmp_path: Path) -> None:
    path = crafted(tmp_path / "a.npz", [("a.npy", GOOD + bytes(64 * 2**20))], compression=8)
    # The archive states the array's own size for a member that holds 64 MiB more.
    raw = path.read_bytes()
    stated = (len(GOOD) + 64 * 2**20).to_bytes(4, "little")
    checksum = zlib.crc32(GOOD + bytes(64 * 2**20)).to_bytes(4, "little")
    assert raw.count(stated) == raw.count(checksum) == 2
    raw = raw.replace(stated, len(GOOD).to_bytes(4, "little"))
    path.write_bytes(raw.replace(checksum, zlib.crc32(GOOD).to_bytes(4, "little")))
    tracemalloc.start()
    try:
        assert read_arrays(path, RULES)["a"].tolist() == [0, 1, 2, 3, 4]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 8 * 2**20


def test_an_invalid_shape_is_refused_before_unpacking(tmp_path: Path) -> None:
    large = npy(np.zeros(48 * 2**20, dtype=np.uint8))
    path = crafted(tmp_path / "a.npz", [("a.npy", large)], compression=8)
    tracemalloc.start()
    try:
        with pytest.raises(ConfigurationError, match=r"shape \(50331648,\) does not fit \(5,\)"):
            read_arrays(path, {"a": ArrayRule("|u1", (5,), 0, 9)})
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 8 * 2**20


def test_an_archive_that_unpacks_to_far_more_is_refused_unopened(tmp_path: Path) -> None:
    """By every reader of such files, and although each array keeps its rule."""
    rows = 80 * 2**20 // 16
    x, y = np.zeros((rows, 4), np.float32), np.zeros(rows, np.int64)
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=x, y=y)
    assert path.stat().st_size < 300_000
    options = OwnOptions(shape=[4], classes=2)
    rules = options.rules(("x", "y"), "samples")
    readers: list[Callable[[], object]] = [
        lambda: read_arrays(path, rules),
        lambda: stated_forms(path),
        lambda: read_own(path, options),
        lambda: read_samples(path, FileOptions()),
    ]
    del x, y
    for read in readers:
        tracemalloc.start()
        try:
            with pytest.raises(ConfigurationError, match="more than 100 times"):
                read()
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < 2**20
    sparse = np.zeros((rows, 4), np.float32)
    sparse[::8, 0] = np.random.default_rng(1).random(rows // 8)
    np.savez_compressed(path, x=sparse, y=np.zeros(rows, np.int64))
    assert read_arrays(path, rules)["x"].shape == (rows, 4)
    np.savez(path, x=np.zeros((rows, 4), np.float32), y=np.zeros(rows, np.int64))
    assert read_arrays(path, rules)["x"].shape == (rows, 4)


def test_an_unusual_compression_is_refused_before_a_member_is_opened(tmp_path: Path) -> None:
    """The header of an LZMA stream orders up to 4 GiB."""
    for method in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
        path = crafted(tmp_path / "a.npz", [("a.npy", GOOD)], compression=method)
        with pytest.raises(ConfigurationError, match="method other than deflate"):
            stated_forms(path)


def crafted(path: Path, members: list[tuple[str, bytes]], **options: Any) -> Path:
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, allow_pickle=False)
    return stream.getvalue()


RULES = {"a": ArrayRule("|u1", (None,), 0, 9)}
GOOD = npy(np.arange(5, dtype=np.uint8))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        GOOD[:-1],
        GOOD.replace(b"(5,)", b"(999999999999,)"),
        GOOD.replace(b"\x01\x00", b"\x03\x00", 1),
        GOOD.replace(b"|u1", b"\xff\xfe!"),
        GOOD.replace(b"'descr':", b"[]      :"),
    ],
)
def test_a_member_with_a_false_header_is_refused(tmp_path: Path, content: bytes) -> None:
    assert read_arrays(crafted(tmp_path / "good.npz", [("a.npy", GOOD)]), RULES)
    with pytest.raises(ConfigurationError, match=r"bad\.npz: "):
        read_arrays(crafted(tmp_path / "bad.npz", [("a.npy", content)]), RULES)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_repeated_members_are_refused(tmp_path: Path) -> None:
    twice = crafted(tmp_path / "twice.npz", [("a.npy", GOOD), ("a.npy", GOOD)])
    with pytest.raises(ConfigurationError, match="must hold exactly"):
        read_arrays(twice, RULES)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_any_damage_to_a_file_ends_in_a_refusal(tmp_path: Path, compression: int) -> None:
    path = crafted(tmp_path / "a.npz", [("a.npy", GOOD)], compression=compression)
    whole = path.read_bytes()
    chance = np.random.default_rng(0)
    refused = 0
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= int(chance.integers(1, 256))
        path.write_bytes(damaged)
        try:
            assert read_arrays(path, RULES)["a"].tolist() == [0, 1, 2, 3, 4]
        except ConfigurationError:
            refused += 1
        path.write_bytes(whole[:position])
        with pytest.raises(ConfigurationError):
            read_arrays(path, RULES)
    assert refused > len(whole) // 2


def test_numbers_that_are_none_are_outside_any_bounds(tmp_path: Path) -> None:
    rules = {"a": ArrayRule("<f4", (None,))}
    sound = crafted(tmp_path / "a.npz", [("a.npy", npy(np.array([1.5, -2], dtype="<f4")))])
    assert read_arrays(sound, rules)["a"].tolist() == [1.5, -2.0]
    for wrong in (np.nan, np.inf, -np.inf):
        path = crafted(tmp_path / "b.npz", [("a.npy", npy(np.array([1, wrong], dtype="<f4")))])
        with pytest.raises(ConfigurationError, match=r"b\.npz: a: values .* outside -inf"):
            read_arrays(path, rules)


def test_bounded_text_is_read_and_invalid_characters_are_refused(tmp_path: Path) -> None:
    rules = {"a": ArrayRule("<U", (None,))}
    words = np.array(["the", "of", "ünïcode"])
    sound = crafted(tmp_path / "a.npz", [("a.npy", npy(words))])
    assert read_arrays(sound, rules)["a"].tolist() == words.tolist()
    for point in (0x110000, 0xD800):
        wrong = npy(np.array(["ab"])).replace(b"b\0\0\0", point.to_bytes(4, "little"))
        path = crafted(tmp_path / "b.npz", [("a.npy", wrong)])
        with pytest.raises(ConfigurationError, match=f"{point:#x} is not a character"):
            read_arrays(path, rules)
    long = crafted(tmp_path / "c.npz", [("a.npy", npy(np.array(["x" * 201])))])
    with pytest.raises(ConfigurationError, match="must be of type <U, is <U201"):
        read_arrays(long, rules)


def test_a_column_major_array_is_read_only_where_allowed(tmp_path: Path) -> None:
    table = np.asfortranarray(np.arange(6, dtype="<f4").reshape(3, 2))
    path = crafted(tmp_path / "a.npz", [("a.npy", npy(table))])
    either = ArrayRule("<f4", (None, 2), by_column=True)
    assert read_arrays(path, {"a": either})["a"].tolist() == table.tolist()
    with pytest.raises(ConfigurationError, match="C order"):
        read_arrays(path, {"a": ArrayRule("<f4", (None, 2))})


def test_only_arrays_that_belong_together_need_equally_many_rows(tmp_path: Path) -> None:
    path = crafted(tmp_path / "a.npz", [("a.npy", GOOD), ("b.npy", npy(np.zeros(2, "u1")))])
    apart = {"a": ArrayRule("|u1", (None,)), "b": ArrayRule("|u1", (None,), rows="others")}
    assert {name: len(array) for name, array in read_arrays(path, apart).items()} == {
        "a": 5,
        "b": 2,
    }
    with pytest.raises(ConfigurationError, match="unequal length"):
        read_arrays(path, {"a": RULES["a"], "b": RULES["a"]})


def text(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_rows_of_csv_come_by_the_names_of_their_columns(tmp_path: Path) -> None:
    path = text(tmp_path / "a.csv", 'b,a,c\n1,"x, ""y""",2\r\n3,"two\nlines",4\n')
    assert list(read_csv(path, ("a", "b"))) == [['x, "y"', "1"], ["two\nlines", "3"]]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("a\n1\n", "has the columns 'a'; must have one 'b'"),
        ("a,b\n1,2\n3\n", "line 3: 1 fields, but the header has 2"),
        ('a,b\n1,"2\n', "line 2: unexpected end of data"),
        (b"a,b\n1,\xff\n", "not UTF-8 text"),
        ("a,b\n1," + "x" * 70_000 + "\n", "line 2: longer than 65536 bytes"),
        ('a,b\n1,"' + "x\n" * 70_000 + '"\n', "field larger than field limit"),
    ],
)
def test_a_damaged_csv_file_is_refused(tmp_path: Path, content: str | bytes, sentence: str) -> None:
    path = text(tmp_path / "a.csv", content)
    with pytest.raises(ConfigurationError, match=rf"a\.csv.*{sentence}"):
        list(read_csv(path, ("a", "b")))


def test_a_missing_or_large_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        list(read_lines(tmp_path / "none.csv"))
    path = text(tmp_path / "a.csv", "abc")
    assert list(read_lines(path)) == ["abc"]
    monkeypatch.setattr("clients.datasets.files.tables.MAX_FILE_BYTES", 2)
    with pytest.raises(ConfigurationError, match="3 bytes, more than 2"):
        list(read_lines(path))


def test_only_requested_vectors_are_read_and_the_first_counts(tmp_path: Path) -> None:
    path = text(tmp_path / "g.txt", "the 0.5 -1\nnaïve 1e-3 2\nthe 9 9\n\u0085 1 1\n")
    found = read_glove(path, {"the", "naïve", "absent"})
    assert {word: vector.tolist() for word, vector in found.items()} == {
        "the": [0.5, -1.0],
        "naïve": [np.float32(1e-3), 2.0],
    }
    arrays = tmp_path / "g.npz"
    words = np.array(["the", "of", "the"])
    np.savez(arrays, word=words, vector=np.array([[1, 2], [3, 4], [5, 6]], dtype="<f4", order="F"))
    assert {word: v.tolist() for word, v in read_glove(arrays, {"the"}).items()} == {
        "the": [1.0, 2.0]
    }


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("the 1 2\nof 1\n", "line 2: 1 numbers; every line must have 2, like the first"),
        ("the 1 x\n", r"line 1: could not convert string to float: 'x'"),
        ("the 1\t2 3\n", "line 1: numbers must have one blank between"),
        ("the 1 nan\n", "line 1: has a number that is not finite"),
        ("of 1 2\n", r"has none of the 1 words of the data"),
        (b"the 1 2\n\xff 1 2\n", "not UTF-8 text"),
        ("the" + " 1" * 4097 + "\n", "line 1: 4097 numbers; .* at most 4096"),
    ],
)
def test_damaged_word_vectors_are_refused(tmp_path: Path, content: Any, sentence: str) -> None:
    path = text(tmp_path / "g.txt", content)
    with pytest.raises(ConfigurationError, match=rf"g\.txt.*{sentence}"):
        read_glove(path, {"the"})


TYPES = {"F32": 4, "U8": 1, "I64": 8}


def file_of(header: str, data: bytes, length: int | None = None) -> bytes:
    encoded = header.encode()
    stated = len(encoded) if length is None else length
    return stated.to_bytes(8, "little") + encoded + data


def entry(dtype: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


X = entry("U8", [4, 2], 0, 8)
Y = entry("U8", [4], 8, 12)
DATA = bytes(range(12))
HOSTILE: dict[str, tuple[dict[str, Any], bytes]] = {
    "trailing bytes": ({"x": X, "y": Y}, DATA + b"\0"),
    "a truncated end": ({"x": X, "y": Y}, DATA[:-1]),
    "overlapping tensors": ({"x": X, "y": entry("U8", [4], 4, 8)}, DATA[:8]),
    "one tensor inside another": ({"x": X, "y": entry("U8", [4], 2, 6)}, DATA[:8]),
    "two names of the same bytes": ({"x": X, "z": X}, DATA[:8]),
    "a hole between tensors": ({"x": X, "y": entry("U8", [4], 9, 13)}, DATA + b"\0"),
    "a hole before the first": ({"y": entry("U8", [4], 8, 12)}, DATA),
    "offsets in reverse": ({"x": X, "y": entry("U8", [4], 12, 8)}, DATA),
    "a size that is not the shape's": ({"x": entry("U8", [4, 3], 0, 8)}, DATA[:8]),
    "a size that overflows": ({"x": entry("U8", [2**32, 2**32, 0], 0, 0)}, b""),
    "offsets beyond 64 bits": ({"x": entry("U8", [4], 2**64, 2**64 + 4)}, b""),
    "metadata of numbers": ({"__metadata__": {"a": 1}, "x": X}, DATA[:8]),
    "metadata in an empty list": ({"__metadata__": [], "x": X}, DATA[:8]),
    "metadata in a list": ({"__metadata__": ["a"], "x": X}, DATA[:8]),
}


def read_all(path: Path) -> dict[str, NDArray[Any]]:
    """Return all arrays of a file, whatever their forms."""
    forms = stated_forms(path).items()
    rules = {n: ArrayRule(dtype, (None,) * len(shape), rows=n) for n, (dtype, shape) in forms}
    return read_arrays(path, rules)


@pytest.mark.parametrize("name", HOSTILE)
def test_what_the_library_rejects_is_rejected(tmp_path: Path, name: str) -> None:
    header, data = HOSTILE[name]
    content = file_of(json.dumps(header), data)
    with pytest.raises(SafetensorError):
        load(content)
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    for read in (array_names, read_all):
        if read is array_names and "size" in name:
            continue  # shapes are compared with sizes where the arrays are read
        with pytest.raises(ConfigurationError, match=r"x\.safetensors"):
            read(path)
    with pytest.raises(ConfigurationError, match=r"x\.safetensors"):
        read_arrays(path, {n: ArrayRule("|u1", (None,)) for n in header})


@st.composite
def files(draw: st.DrawFn) -> bytes:
    header: dict[str, Any] = {}
    end = 0
    for name in draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True)):
        dtype = draw(st.sampled_from(sorted(TYPES)))
        shape = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
        size = int(np.prod(shape)) * TYPES[dtype]
        header[name] = entry(dtype, shape, end, end + size)
        end += size
    data = draw(st.binary(min_size=end, max_size=end))
    change = st.sampled_from([-8, -1, 1, 4, 8, 2**64])
    for _ in range(draw(st.integers(0, 2))):
        name = draw(st.sampled_from(sorted(header)))
        field = draw(st.sampled_from(["data_offsets", "shape"]))
        place = draw(st.integers(0, len(header[name][field]) - 1))
        header[name][field][place] += draw(change)
    if draw(st.booleans()):
        metadata = st.dictionaries(st.sampled_from("mn"), st.text(max_size=3) | st.integers())
        header["__metadata__"] = draw(metadata | st.none() | st.just([]))
    items = draw(st.permutations(sorted(header.items())))
    text = json.dumps(dict(items)) + " " * draw(st.integers(0, 2))
    text = draw(st.sampled_from(["", "", " ", "\n"])) + text
    data += draw(st.sampled_from([b"", b"", b"\0", bytes(8)]))
    return file_of(text, data, len(text) + draw(st.sampled_from([0, 0, 0, -1, 1])))


@settings(
    max_examples=times(300, 20_000),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(files())
def test_a_file_is_read_where_the_library_reads_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    try:
        expected = load(content)
    except SafetensorError:
        with pytest.raises(ConfigurationError):
            read_all(path)
        return
    if not all(array.size and array.ndim for array in expected.values()):
        return
    if any(not np.isfinite(array).all() for array in expected.values()):
        return
    found = read_all(path)
    assert {name: (a.dtype, a.shape, a.tobytes()) for name, a in found.items()} == {
        name: (a.dtype, a.shape, a.tobytes()) for name, a in expected.items()
    }


FIXTURES = Path(__file__).parents[2] / "fixtures" / "hugging_face"
COLUMNS = {"n": Column.WHOLE, "t": Column.TEXT, "i": Column.IMAGE}
PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgBwAACQAIICPDjAAAAABJRU5ErkJggg=="
)
IMAGES = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def table(**changed: Any) -> pa.Table:
    columns = {
        "n": pa.array([1, 2, 3], pa.int16()),
        "t": pa.array(["a", "b", "a"]),
        "i": pa.array([{"bytes": PICTURE, "path": None}] * 3, IMAGES),
    }
    return pa.table(columns | changed)


def written(path: Path, content: pa.Table, **options: Any) -> Path:
    pq.write_table(content, path, **options)
    return path


def all_rows(path: Path) -> dict[str, Any]:
    batches = list(read_rows(path, COLUMNS))
    return {name: [x for batch in batches for x in batch[name].tolist()] for name in batches[0]}


@pytest.mark.parametrize("text", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}, {"row_group_size": 2}])
def test_columns_are_read_however_they_are_written(tmp_path: Path, options: Any, text: Any) -> None:
    content = table(t=pa.array(["a", "b", "a"], text))
    path = written(tmp_path / "t.parquet", content, **options)
    assert all_rows(path) == {"n": [1, 2, 3], "t": ["a", "b", "a"], "i": [[[[7]]]] * 3}
    assert set(column_names([path])) == {"n", "t", "i"}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"n": ([1.5, 2, 3],)}, "n, from row 0: holds double, not whole numbers"),
        ({"i": ([b"a", b"b", b"c"],)}, "i, from row 0: must hold .*images.*holds binary"),
        ({"n": ([1, None, 3],)}, "n, from row 0: 1 entries are missing"),
        ({"i": ([None, {"bytes": None, "path": "a.png"}, None], IMAGES)}, "entries are missing"),
        ({"n": ([2**63, 0, 0], pa.uint64())}, r"holds numbers beyond 2\^63"),
    ],
)
def test_a_column_of_wrong_type_is_refused(tmp_path: Path, changed: Any, sentence: str) -> None:
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
