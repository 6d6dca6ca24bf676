"""Check of a blob folder: count, damaged blobs, foreign files."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cmfl.commands.console import progress
from ledger.io.home import WRITING
from ledger.protocol import types
from ledger.protocol.errors import BlobError, BlobMissingError
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from ledger.storage.blobs import FolderBlobs

_NAME = re.compile(types.BARE)


@dataclass(slots=True)
class _Listing:
    """The files of a folder of blobs."""

    digests: list[Digest] = field(default_factory=list)
    size_bytes: int = 0
    empty: list[str] = field(default_factory=list)
    unfinished: int = 0
    others: int = 0


def check_blobs(blobs: FolderBlobs, *, deep: bool) -> str:
    """Return what is in the folder, in a sentence.

    Args:
        blobs: the folder.
        deep: whether each blob is read and hashed.

    Raises:
        BlobError: a blob is not what its name says.
    """
    listing = _listed(blobs)
    damaged = listing.empty + (_damaged(blobs, listing.digests) if deep else [])
    if damaged:
        more = f" and {len(damaged) - 1} more" if len(damaged) > 1 else ""
        raise BlobError(
            f"{damaged[0]}{more}: put the blob back from a copy, or remove it; without it an audit "
            f"stays incomplete"
        )
    sentence = f"{len(listing.digests)} blobs, {listing.size_bytes / 1e6:.1f} MB"
    if deep:
        sentence += ", each hashed"
    if listing.unfinished:
        sentence += f"; {listing.unfinished} unfinished files, which the next writer removes"
    if listing.others:
        sentence += f"; {listing.others} other files, which are ignored"
    return sentence


def _listed(blobs: FolderBlobs) -> _Listing:
    listing = _Listing()
    for path in sorted(blobs.folder.glob("*/*")):
        if path.name.startswith(WRITING):
            listing.unfinished += 1
        elif not _NAME.fullmatch(path.name) or path.parent.name != path.name[:2]:
            listing.others += 1
        else:
            size = path.stat().st_size
            listing.digests.append(Digest(bytes.fromhex(path.name)))
            listing.size_bytes += size
            if size == 0:
                listing.empty.append(f"blob {path.name} is empty")
    return listing


def _damaged(blobs: FolderBlobs, digests: list[Digest]) -> list[str]:
    damaged = []
    with progress() as bar:
        for digest in bar.track(digests, description="blobs"):
            try:
                blobs.get(digest)
            except BlobMissingError:
                continue  # a writer has put another in its place meanwhile
            except BlobError as error:
                damaged.append(str(error))
    return damaged
