"""Whether the places that a client needs can be read and written: blobs, mail, its folder."""

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
"""Free beside what a worker writes: a full disk stops its journal, and so its votes."""


def check_blob_store(place: Location, uploads: UploadSigner, document: bytes, probe: bytes) -> str:
    """Put something where blobs go, read it back, and say how.

    A server is given the run document, signed as every upload: it has that, so nothing is added.
    Anywhere else a probe is put and removed.

    Args:
        place: one place of blobs.
        uploads: signs.
        document: bytes of the run document.
        probe: bytes that nobody else puts.

    Raises:
        BlobError: the place does not take it, or does not give it back.
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
    """Read the mail of a round, see whether a folder can be written, and say how much there is.

    Mail is what clients have signed, so that nothing is put here to try.

    Args:
        place: one place of mail.
        uploads: signs.
        round_number: the open one.
        probe: bytes that are written into a folder and removed.

    Raises:
        BlobError: there is no such place.
        OSError: it cannot be read or written.
    """
    mailbox = mailbox_at(place.text, uploads)
    mail = sum(len(mailbox.listed(uploads.domain, round_number, kind)) for kind in EnvelopeKind)
    said = f"{place.shown} is read, {mail} letters of round {round_number}"
    if place.kind is not LocationKind.FOLDER:
        return f"{said}; written with your first letter"
    _try_folder(folder_at("mailbox", place), probe)
    return f"{said}, and can be written"


def check_worker_folder(folder: Path, payload_bytes: int) -> str:
    """Make a worker's folder, and say how much room it has.

    Args:
        folder: of the worker.
        payload_bytes: that its client's updates take.

    Raises:
        ConfigurationError: it is a file, a worker runs on it, or there is no room.
        OSError: it cannot be made or written.
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
    known = "has a journal" if worker.journal.exists() else "has no journal yet"
    return f"{folder} is free, {known}, {free / 1e9:.1f} GB are left"


def _try_folder(folder: Path, probe: bytes) -> None:
    """Write a file into a folder, and remove it.

    Raises:
        OSError: it cannot be written.
    """
    if not folder.exists():
        DISK.make_folder(folder)
    DISK.remove(DISK.create(folder, probe))
