"""Where blobs are, as an operator writes it: a folder, a server, a bucket, or several of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ledger.protocol.errors import BlobError
from ledger.storage.blobs import FolderBlobs
from ledger.storage.bucket import RemoteBlobs, RemoteFiles
from ledger.storage.http import HttpBlobs
from ledger.storage.locations import LocationKind, parse_locations
from ledger.storage.replicated import SeveralReaders, SeveralStores
from ledger.storage.served import ServedBlobs

if TYPE_CHECKING:
    from ledger.storage.blobs import BlobReader, BlobStore
    from ledger.storage.locations import Location
    from ledger.storage.uploads import UploadSigner


def reader_at(text: str) -> BlobReader:
    """Return what reads the blobs at a place, or at several, separated by commas.

    Args:
        text: a folder that is there, an http or https URL of any server over one, or any URL that
            fsspec knows.

    Raises:
        BlobError: there is no such place.
    """
    readers = [_reader(place) for place in parse_locations("blobs", text)]
    return readers[0] if len(readers) == 1 else SeveralReaders(readers)


def store_at(text: str, upload: UploadSigner | None = None) -> BlobStore:
    """Return what reads and writes the blobs at a place, or at several, separated by commas.

    Args:
        text: a folder, http or https of `cmfl blobs serve`, or any URL that fsspec knows.
        upload: signs what a server over HTTP is asked to keep; None to read only.

    Raises:
        BlobError: there is no such place.
    """
    stores = [_store(place, upload) for place in parse_locations("blobs", text)]
    return stores[0] if len(stores) == 1 else SeveralStores(stores)


def _reader(place: Location) -> BlobReader:
    """Return what reads at one place.

    Raises:
        BlobError: there is none.
    """
    match place.kind:
        case LocationKind.SERVER:
            return HttpBlobs(place.text)
        case LocationKind.REMOTE:
            return RemoteBlobs(RemoteFiles(place))
        case LocationKind.FOLDER:
            folder = Path(place.text)
            if not folder.is_dir():
                raise BlobError(
                    f"blobs: {place.text!r} is no folder here, and no http or https URL"
                )
            return FolderBlobs(folder)


def _store(place: Location, upload: UploadSigner | None) -> BlobStore:
    match place.kind:
        case LocationKind.SERVER:
            return ServedBlobs(place.text, upload)
        case LocationKind.REMOTE:
            return RemoteBlobs(RemoteFiles(place))
        case LocationKind.FOLDER:
            return FolderBlobs(folder_at("blobs", place))


def folder_at(what: str, place: Location) -> Path:
    """Return a folder that is there, or can be made in one that is.

    Args:
        what: is looked for there, for an error.
        place: of the folder.

    Raises:
        BlobError: there is none: a disk that is not mounted looks like this.
    """
    folder = Path(place.text)
    if folder.is_dir() or (not folder.exists() and folder.parent.is_dir()):
        return folder
    raise BlobError(
        f"{what}: {place.text!r} is no folder, and cannot be made where none is above it"
    )
