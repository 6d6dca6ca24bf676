"""Arrays out of `.npz` files, whole, damaged and hostile."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from clients.datasets.files.data_archive import ArrayRule, read_arrays, stated_forms
from clients.datasets.own import OwnOptions, read_own
from clients.datasets.own_columns import FileOptions
from clients.datasets.own_layouts import read_samples
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


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


def test_an_invalid_shape_is_refused_before_unpacking(
    tmp_path: Path,
) -> None:
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


def test_an_archive_that_unpacks_to_far_more_than_its_size_is_refused_unopened(
    tmp_path: Path,
) -> None:
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
    sparse[:, 0] = np.random.default_rng(1).random(rows)
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
        GOOD[:5],
        GOOD[:-1],
        GOOD + b"\0",
        GOOD.replace(b"(5,)", b"(999999999999,)"),
        GOOD.replace(b"(5,)", b"(-5,)"),
        GOOD.replace(b"(5,)", b"[5,]"),
        GOOD.replace(b"\x01\x00", b"\x03\x00", 1),
        GOOD.replace(b"|u1", b"\xff\xfe!"),
    ],
)
def test_a_member_with_a_false_header_is_refused(tmp_path: Path, content: bytes) -> None:
    assert read_arrays(crafted(tmp_path / "good.npz", [("a.npy", GOOD)]), RULES)
    with pytest.raises(ConfigurationError, match=r"bad\.npz: "):
        read_arrays(crafted(tmp_path / "bad.npz", [("a.npy", content)]), RULES)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_repeated_members_and_unusual_compression_are_refused(tmp_path: Path) -> None:
    twice = crafted(tmp_path / "twice.npz", [("a.npy", GOOD), ("a.npy", GOOD)])
    with pytest.raises(ConfigurationError, match="must hold exactly"):
        read_arrays(twice, RULES)
    lzma = crafted(tmp_path / "lzma.npz", [("a.npy", GOOD)], compression=zipfile.ZIP_LZMA)
    with pytest.raises(ConfigurationError, match="other than deflate"):
        read_arrays(lzma, RULES)


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


def test_bounded_text_is_read_and_invalid_characters_are_refused(
    tmp_path: Path,
) -> None:
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
