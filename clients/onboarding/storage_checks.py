"""Checks that a client can read and write blobs, mail and its folder."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from clients.worker.process.worker_folder import WorkerFolder
from ledger.io.home import DISK
from ledger.protocol.documents.envelope import EnvelopeKind
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ConfigurationError
from ledger.storage.locations import LocationKind
from ledger.storage.opening import folder_at, mailbox_at, store_at

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.storage.locations import Location
    from ledger.storage.uploads import UploadSigner

SPARE_BYTES = 100_000_000
"""Reserve on the disk: a full one stops the journal, and so the votes."""


def check_blob_store(place: Location, uploads: UploadSigner, document: bytes, probe: bytes) -> str:
    """Put a blob, read it back, and return a sentence.

    A server gets the run document, signed as every upload: it has that already, so nothing is
    added.
    Anywhere else the probe is put and removed.

    Raises:
        BlobError: the location does not accept it, or does not return it.
    """
    store = store_at(place.text, uploads)
    if place.kind is LocationKind.SERVER:
        store.put(document)
        store.get(sha256(document), len(document))
        return f"{place.shown} takes signed uploads and gives blobs"
    digest = store.put(probe)
    try:
        store.get(digest, len(probe))
    finally:
        store.remove(digest)
    return f"{place.shown} is read and written"


def check_mailbox(place: Location, uploads: UploadSigner, round_number: int, probe: bytes) -> str:
    """Read the mail of a round, test whether a folder is writable, and return a sentence.

    Nothing is put into a mailbox: mail consists of signed envelopes.

    Raises:
        BlobError: there is no such location.
        OSError: it cannot be read or written.
    """
    mailbox = mailbox_at(place.text, uploads)
    mail = sum(len(mailbox.listed(uploads.domain, round_number, kind)) for kind in EnvelopeKind)
    sentence = f"{place.shown} is read, {mail} letters of round {round_number}"
    if place.kind is not LocationKind.FOLDER:
        return f"{sentence}; written with your first letter"
    _try_folder(folder_at("mailbox", place), probe)
    return f"{sentence}, and can be written"


def check_worker_folder(folder: Path, payload_bytes: int) -> str:
    """Create a worker's folder, and return a sentence about its free space.

    Raises:
        ConfigurationError: it is a file, a worker runs on it, or there is no space.
        OSError: it cannot be created or written.
    """
    worker = WorkerFolder(folder)
    worker.make()
    if worker.is_held():
        raise ConfigurationError(f"{folder}: a worker runs on it already; one journal is for one")
    _try_folder(folder, b"probe")
    free, needed = shutil.disk_usage(folder).free, payload_bytes + SPARE_BYTES
    if free < needed:
        raise ConfigurationError(
            f"{folder}: {free // 1_000_000} MB are free, and {needed // 1_000_000} MB needed"
        )
    journal = "has a journal" if worker.journal.exists() else "has no journal yet"
    return f"{folder} is free, {journal}, {free / 1e9:.1f} GB are left"


def _try_folder(folder: Path, probe: bytes) -> None:
    """Write a file into a folder, and remove it."""
    if not folder.exists():
        DISK.make_folder(folder)
    DISK.remove(DISK.create(folder, probe))
