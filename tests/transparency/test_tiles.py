"""Tiles and bundles: paths and widths of the specification's examples, and files that lie."""

from __future__ import annotations

import pytest

from ledger.transparency import tiles
from ledger.transparency.checkpoints import Checkpoint
from ledger.transparency.errors import TileError
from ledger.transparency.merkle import leaf_hash, root_of
from ledger.transparency.tiles import MAX_ENTRIES, bundles_of, read_entries, tiles_of
from tests.transparency.support import ORIGIN, checkpoint, entries


def paths_of(size: int) -> list[str]:
    leaf = leaf_hash(b"")
    return [tile.path for tile in tiles_of([leaf] * size)]


def test_the_specifications_seventy_thousand_entries_have_its_tiles() -> None:
    paths = paths_of(70_000)
    level0 = [path for path in paths if path.startswith("tile/0/")]
    assert (len(level0), level0[-1]) == (274, "tile/0/273.p/112")
    assert [path for path in paths if path.startswith("tile/1/")] == [
        "tile/1/000",
        "tile/1/001.p/17",
    ]
    assert [path for path in paths if path.startswith("tile/2/")] == ["tile/2/000.p/1"]
    assert not [path for path in paths if path.startswith("tile/3/")]


def test_a_full_tile_is_a_hash_of_the_level_above() -> None:
    assert paths_of(256) == ["tile/0/000", "tile/1/000.p/1"]
    leaves = [leaf_hash(bytes([number])) for number in range(256)]
    low, high = tiles_of(leaves)
    assert low.data == b"".join(leaves)
    assert high.data == root_of(leaves)
    assert paths_of(0) == []
    assert paths_of(1) == ["tile/0/000.p/1"]


def test_a_bundle_has_each_entry_after_its_length() -> None:
    [bundle] = bundles_of([b"", b"abc"])
    assert (bundle.path, bundle.data) == ("tile/entries/000.p/2", b"\x00\x00\x00\x03abc")


def files(count: int) -> dict[str, bytes]:
    """Return the files of a log."""
    own = entries(count)
    hashes = tiles_of([leaf_hash(entry) for entry in own])
    return {file.path: file.data for file in (*hashes, *bundles_of(own))}


@pytest.mark.parametrize("count", [0, 1, 5, 256, 257, 600])
def test_the_entries_of_a_whole_log_are_read(count: int) -> None:
    assert read_entries(checkpoint(count).checkpoint, files(count).__getitem__) == entries(count)


@pytest.mark.parametrize("path", sorted(files(600)))
def test_a_file_that_does_not_hash_is_named(path: str) -> None:
    changed = files(600)
    changed[path] = changed[path][:-1] + bytes([changed[path][-1] ^ 1])
    with pytest.raises(TileError) as error:
        read_entries(checkpoint(600).checkpoint, changed.__getitem__)
    # Where an entry was changed, its tile is the first that it contradicts.
    assert path.replace("entries", "0") in str(error.value)


@pytest.mark.parametrize("damage", [b"", b"\x00", b"\xff\xff", b"\x00\x01", bytes(2 * 600)])
def test_what_is_no_bundle_is_named(damage: bytes) -> None:
    changed = files(5) | {"tile/entries/000.p/5": damage}
    with pytest.raises(TileError, match="entries/000"):
        read_entries(checkpoint(5).checkpoint, changed.__getitem__)


def test_a_log_of_huge_entries_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "MAX_LOG_BYTES", 100_000)
    held = files(1_000)
    asked: list[str] = []

    def read(path: str) -> bytes:
        asked.append(path)
        return held[path]

    with pytest.raises(TileError, match="over 100000 bytes"):
        read_entries(checkpoint(1_000).checkpoint, read)
    assert len(asked) < len([path for path in held if "entries" in path])


def test_a_log_of_huge_size_is_not_read() -> None:
    huge = Checkpoint(ORIGIN, MAX_ENTRIES + 1, checkpoint(1).checkpoint.root)
    with pytest.raises(TileError):
        read_entries(huge, lambda _: pytest.fail("it was read"))


def test_files_of_another_history_do_not_have_the_root() -> None:
    with pytest.raises(TileError, match="root"):
        read_entries(checkpoint(5, fork=3).checkpoint, files(5).__getitem__)
