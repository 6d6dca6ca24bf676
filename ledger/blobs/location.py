"""Where blobs are, as an operator writes it: a folder, a server, a bucket, or several of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ledger.blobs.http import HttpBlobs
from ledger.blobs.places import PlaceKind, places_of
from ledger.blobs.remote import RemoteBlobs, RemoteFiles
from ledger.blobs.served import ServedBlobs
from ledger.blobs.several import SeveralReaders, SeveralStores
from ledger.blobs.store import FolderBlobs
from ledger.protocol.errors import BlobError

if TYPE_CHECKING:
    from ledger.blobs.places import Place
    from ledger.blobs.store import BlobReader, BlobStore
    from ledger.blobs.uploads import Uploads


def reader_at(text: str) -> BlobReader:
    """Return what reads the blobs at a place, or at several, separated by commas.

    Args:
        text: a folder that is there, an http or https URL of any server over one, or any URL that
            fsspec knows.

    Raises:
        BlobError: there is no such place.
    """
    readers = [_reader(place) for place in places_of("blobs", text)]
    return readers[0] if len(readers) == 1 else SeveralReaders(readers)


def store_at(text: str, upload: Uploads | None = None) -> BlobStore:
    """Return what reads and writes the blobs at a place, or at several, separated by commas.

    Args:
        text: a folder, http or https of `cmfl blobs serve`, or any URL that fsspec knows.
        upload: signs what a server over HTTP is asked to keep; None to read only.

    Raises:
        BlobError: there is no such place.
    """
    stores = [_store(place, upload) for place in places_of("blobs", text)]
    return stores[0] if len(stores) == 1 else SeveralStores(stores)


def _reader(place: Place) -> BlobReader:
    """Return what reads at one place.

    Raises:
        BlobError: there is none.
    """
    match place.kind:
        case PlaceKind.SERVER:
            return HttpBlobs(place.text)
        case PlaceKind.REMOTE:
            return RemoteBlobs(RemoteFiles(place))
        case PlaceKind.FOLDER:
            folder = Path(place.text)
            if not folder.is_dir():
                raise BlobError(
                    f"blobs: {place.text!r} is no folder here, and no http or https URL"
                )
            return FolderBlobs(folder)


def _store(place: Place, upload: Uploads | None) -> BlobStore:
    match place.kind:
        case PlaceKind.SERVER:
            return ServedBlobs(place.text, upload)
        case PlaceKind.REMOTE:
            return RemoteBlobs(RemoteFiles(place))
        case PlaceKind.FOLDER:
            return FolderBlobs(folder_at("blobs", place))


def folder_at(what: str, place: Place) -> Path:
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
