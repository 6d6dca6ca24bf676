"""Opening the blobs and the mailbox at the locations that an operator names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.protocol.errors import BlobError
from ledger.storage.blobs import BlobReader, BlobStore, FolderBlobs, ObjectBlobs
from ledger.storage.bucket import BucketObjects
from ledger.storage.http import HttpObjects, static_server, store_server
from ledger.storage.mailbox import Mailbox
from ledger.storage.objects import (
    FolderObjects,
    Location,
    LocationKind,
    ObjectStore,
    parse_locations,
)
from ledger.storage.replicated import ReplicatedObjects

if TYPE_CHECKING:
    from ledger.storage.http import UploadSigner

BLOB_SECONDS = 60.0
MAIL_SECONDS = 30.0


def reader_at(text: str) -> BlobReader:
    """Return a reader of the blobs at one location, or at several, separated by commas.

    Args:
        text: an existing folder, an http or https URL of any server over one, or any URL that
            fsspec knows.
    """
    locations = parse_locations("blobs", text)
    for location in locations:
        if location.kind is LocationKind.FOLDER and not Path(location.text).is_dir():
            raise BlobError(f"blobs: {location.text!r} is no folder here, and no http or https URL")
    return _blobs([_open("blobs", location, static_server) for location in locations])


def store_at(text: str, signer: UploadSigner | None = None) -> BlobStore:
    """Return a store of the blobs at one location, or at several, separated by commas.

    Args:
        text: a folder, http or https of `cmfl blobs serve`, or any URL that fsspec knows.
        signer: signs what a server is asked to store; None to read only.
    """
    connect = partial(store_server, signer=signer, timeout_seconds=BLOB_SECONDS)
    return _blobs([_open("blobs", each, connect) for each in parse_locations("blobs", text)])


def mailbox_at(text: str, signer: UploadSigner | None = None) -> Mailbox:
    """Return the mailbox at one location, or at several; see `store_at`."""
    return Mailbox(mail_objects_at(text, signer))


def mail_objects_at(text: str, signer: UploadSigner | None = None) -> ObjectStore:
    """Return the objects of the mailbox at one location, or at several; see `store_at`."""
    connect = partial(store_server, signer=signer, timeout_seconds=MAIL_SECONDS)
    return _replicated(
        [_open("mailbox", each, connect) for each in parse_locations("mailbox", text)]
    )


def require_mailbox(text: str) -> None:
    """Refuse a mailbox that is to be read, and is a folder that is not there."""
    for location in parse_locations("mailbox", text):
        if location.kind is LocationKind.FOLDER and not Path(location.text).is_dir():
            raise BlobError(f"mailbox: {location.text!r} is no folder")


def folder_at(option: str, location: Location) -> Path:
    """Return a folder that is there, or can be made in one that is."""
    folder = Path(location.text)
    if folder.is_dir() or (not folder.exists() and folder.parent.is_dir()):
        return folder
    raise BlobError(
        f"{option}: {location.text!r} is no folder, and cannot be made: its parent is missing"
    )


def _open(option: str, location: Location, connect: Callable[[str], HttpObjects]) -> ObjectStore:
    match location.kind:
        case LocationKind.SERVER:
            return connect(location.text)
        case LocationKind.REMOTE:
            return BucketObjects(location)
        case LocationKind.FOLDER:
            return FolderObjects(folder_at(option, location))


def _blobs(stores: list[ObjectStore]) -> ObjectBlobs:
    # The blobs of one folder can be enumerated, and streamed.
    if len(stores) == 1 and isinstance(stores[0], FolderObjects):
        return FolderBlobs(stores[0].folder)
    return ObjectBlobs(_replicated(stores))


def _replicated(stores: list[ObjectStore]) -> ObjectStore:
    return stores[0] if len(stores) == 1 else ReplicatedObjects(stores)
