"""Where blobs are, as an operator writes it: a folder, or the URL of a server over one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ledger.blobs.http import HttpBlobs
from ledger.blobs.store import FolderBlobs
from ledger.protocol.errors import BlobError

if TYPE_CHECKING:
    from ledger.blobs.store import BlobReader


def reader_at(text: str) -> BlobReader:
    """Return what reads the blobs at a place.

    Args:
        text: an http or https URL, or a folder.

    Raises:
        BlobError: it is neither.
    """
    if "://" in text:
        return HttpBlobs(text)
    folder = Path(text)
    if not folder.is_dir():
        # A mistyped URL may hold a key.
        shown = "what is given" if text[:4].lower() == "http" or "@" in text else repr(text)
        raise BlobError(f"blobs: {shown} is no folder here, and no http or https URL")
    return FolderBlobs(folder)
