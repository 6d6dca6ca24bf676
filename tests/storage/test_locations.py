"""Storage locations as an operator writes them; a possible secret is never repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledger.protocol.errors import BlobError
from ledger.storage.blobs import FolderBlobs
from ledger.storage.locations import MAX_LOCATIONS, Location, LocationKind, parse_locations
from ledger.storage.opening import store_at

if TYPE_CHECKING:
    from pathlib import Path


def test_a_location_is_recognised_by_its_beginning() -> None:
    text = "a/b, https://host/x,s3://bucket/x,file:///srv/blobs"
    assert parse_locations("blobs", text) == (
        Location(LocationKind.FOLDER, "a/b"),
        Location(LocationKind.SERVER, "https://host/x"),
        Location(LocationKind.REMOTE, "s3://bucket/x"),
        Location(LocationKind.FOLDER, "/srv/blobs"),
    )


def test_a_secret_is_not_shown() -> None:
    for text, shown in (
        ("s3://key:SECRET@bucket/SECRET?SECRET", "s3://bucket"),
        ("https://u:SECRET@host:8/SECRET#SECRET", "https://host:8"),
        ("/srv/blobs", "/srv/blobs"),
    ):
        assert parse_locations("blobs", text)[0].shown == shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "a,,b",
        ",".join(["a"] * (MAX_LOCATIONS + 1)),
        "http:/SECRET",
        "SECRET@host",
        "a\0SECRET",
        "SECRET" * 400,
        "SECRET+%://x",
    ],
)
def test_an_invalid_location_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(BlobError, match="blobs: ") as caught:
        parse_locations("blobs", text)
    assert "SECRET" not in str(caught.value)


def test_a_folder_is_there_or_can_be_made(tmp_path: Path) -> None:
    assert isinstance(store_at(str(tmp_path / "new")), FolderBlobs)
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").touch()
    for name in ("file", "file/below", "none/below"):
        with pytest.raises(BlobError, match="is no folder"):
            store_at(str(tmp_path / name))
