"""Locations as an operator writes them, without their secrets, and signatures for uploads."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.protocol.encoding import sha256
from ledger.protocol.errors import BlobError, SignatureError
from ledger.protocol.signing import is_signed_by
from ledger.protocol.types import ClientId, Upload
from ledger.storage.blobs import MAX_LOCATIONS, FolderBlobs, Location, LocationKind, parse_locations
from ledger.storage.http import UploadSigner, parse_authorization
from ledger.storage.opening import store_at
from tests.actors.support import signers
from tests.support.keys import DOMAIN


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
        with pytest.raises(BlobError, match=r"is not a local|is missing"):
            store_at(str(tmp_path / name))


DIGEST = sha256(b"x")
URL = "https://store.example/2d/2d71"


def test_what_is_shown_is_read_as_it_was_signed() -> None:
    uploads = UploadSigner(DOMAIN, signers()[3], ClientId(3))
    uploads.round = 7
    (header,) = uploads.authorizations(URL, DIGEST, 1)
    upload, signature = parse_authorization(header, DIGEST, 1)
    assert upload == Upload(7, ClientId(3), URL, DIGEST, 1)
    assert is_signed_by(signers()[3].address, DOMAIN, upload, signature)
    longer, signature = parse_authorization(header, DIGEST, 2)
    assert not is_signed_by(signers()[3].address, DOMAIN, longer, signature)
    assert "signer" not in repr(signature)


def test_the_last_queried_store_is_the_first_next_time() -> None:
    others = tuple((ClientId(one), signers()[one]) for one in (1, 2))
    uploads = UploadSigner(DOMAIN, signers()[0], ClientId(0), others, round=1)

    def clients() -> list[int]:
        shown = uploads.authorizations(URL, DIGEST, 1)
        return [parse_authorization(header, DIGEST, 1)[0].client for header in shown]

    assert clients() == [0, 1, 2]
    assert clients() == [2, 0, 1]
    headers = uploads.authorizations(URL, DIGEST, 1)
    assert parse_authorization(next(headers), DIGEST, 1)[0].client == 1
    assert clients() == [1, 2, 0]


@pytest.mark.parametrize("text", ["", "CMFL 1.1.00", "Bearer x", "CMFL 1.1." + "0" * 131])
def test_what_is_no_header_is_refused(text: str) -> None:
    with pytest.raises(SignatureError, match=r"CMFL client\.round\.signature url"):
        parse_authorization(text, DIGEST, 1)
