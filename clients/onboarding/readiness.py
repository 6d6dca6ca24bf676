"""Readiness of what a client depends on: final blocks in time, blobs, mail and its folder."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clients.worker.process.worker_folder import WorkerFolder
from ledger.chain.finality import final_number
from ledger.chain.ports import Block, ChainReader
from ledger.io.home import DISK
from ledger.protocol.documents.envelope import EnvelopeKind
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ConfigurationError
from ledger.storage.locations import Location, LocationKind
from ledger.storage.opening import folder_at, mailbox_at, store_at

if TYPE_CHECKING:
    from ledger.storage.uploads import UploadSigner

SPARE_BYTES = 100_000_000
"""Reserve on the disk: a full one stops the journal, and so the votes."""


@dataclass(frozen=True, slots=True)
class FinalityLag:
    """Lag of the newest final block behind the newest block."""

    final: Block
    newest: Block

    @property
    def seconds(self) -> int:
        """Difference of the time stamps."""
        return self.newest.timestamp - self.final.timestamp

    def closed_too_early(self, window: int) -> str | None:
        """Return advice if a worker would see each round after its window; None otherwise.

        A worker acts on final blocks. If it sees a round open only after its window, it never
        trains for any client, and no error ever shows that.

        Args:
            window: blocks after a round's opening one in which commitments are accepted.
        """
        behind = self.newest.number - self.final.number
        if behind < window:
            return None
        return (
            f"block {self.final.number} is the newest final one, {behind} behind block "
            f"{self.newest.number}, and a round takes commitments for {window} blocks only, which "
            f"are over before it is seen: give --confirmations N, well under {window}"
        )

    def seen_too_late(self, view_seconds: int) -> str | None:
        """Return a warning if the last commitments are seen after view 0 starts; None otherwise.

        Updates are published once their commitments are final, and view 0 begins `view_seconds`
        after the closing block: a late member is left out of it, and its primary may be silent for
        that reason only.
        """
        if self.seconds < view_seconds:
            return None
        return (
            f"the newest final block is {self.seconds} s older than the newest one, and the first "
            f"view begins {view_seconds} s after a window has closed: unless no block has come for "
            "a while, the last commitments miss that view, and it may end before any member acts"
        )


def finality_lag(chain: ChainReader, confirmations: int | None) -> FinalityLag:
    """Return the lag on a node's chain.

    Args:
        confirmations: blocks on top of a final block; None for the chain's own finality.
    """
    newest = chain.head()
    return FinalityLag(chain.block(final_number(chain, newest, confirmations)), newest)


def check_blob_store(place: Location, uploads: UploadSigner, document: bytes, probe: bytes) -> str:
    """Put a blob, read it back, and return a sentence.

    A server gets the run document, signed as every upload: it has that already, so nothing is
    added. Anywhere else the probe is put and removed.
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
    """
    mailbox = mailbox_at(place.text, uploads)
    mail = sum(len(mailbox.listed(uploads.domain, round_number, kind)) for kind in EnvelopeKind)
    sentence = f"{place.shown} is read, {mail} letters of round {round_number}"
    if place.kind is not LocationKind.FOLDER:
        return f"{sentence}; written with your first letter"
    _try_folder(folder_at("mailbox", place), probe)
    return f"{sentence}, and can be written"


def check_worker_folder(folder: Path, payload_bytes: int) -> str:
    """Create a worker's folder, and return a sentence about its free space."""
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
    if not folder.exists():
        DISK.make_folder(folder)
    DISK.remove(DISK.create(folder, probe))
