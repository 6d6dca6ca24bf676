"""Places as an operator writes them: folders, servers and buckets, one or several."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from urllib.parse import urlsplit

from ledger.protocol.errors import BlobError

MAX_LOCATIONS = 8
_LONGEST = 2_000


class LocationKind(Enum):
    """What is asked for bytes at a place."""

    FOLDER = "folder"
    SERVER = "server"
    REMOTE = "remote"


@dataclass(frozen=True, slots=True)
class Location:
    """One place.

    Attributes:
        kind: what answers there.
        text: a folder's path, or a URL, which may hold a secret.
    """

    kind: LocationKind
    text: str

    @property
    def shown(self) -> str:
        """The place without user, password, path and query, since any of them may be a key."""
        if self.kind is LocationKind.FOLDER:
            return self.text
        parts = urlsplit(self.text)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def parse_locations(what: str, text: str) -> tuple[Location, ...]:
    """Return the places that a setting names.

    Args:
        what: is looked for there, for an error.
        text: folders and URLs, separated by commas.

    Raises:
        BlobError: it names none, too many, or what is neither a folder's path nor a URL.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(parts) or len(parts) > MAX_LOCATIONS:
        raise BlobError(
            f"{what}: 1 to {MAX_LOCATIONS} folders or URLs are named, separated by commas"
        )
    return tuple(_place(what, part) for part in parts)


def _place(what: str, text: str) -> Location:
    if "\0" in text or len(text) > _LONGEST:
        raise BlobError(f"{what}: a folder or URL has no null and at most {_LONGEST} characters")
    scheme, mark, rest = text.partition("://")
    scheme = scheme.lower()
    if not mark:
        # A mistyped URL may hold a key.
        if text[:4].lower() == "http" or "@" in text:
            raise BlobError(f"{what}: what is given is no folder here, and no http or https URL")
        return Location(LocationKind.FOLDER, text)
    if scheme in {"http", "https"}:
        return Location(LocationKind.SERVER, text)
    if scheme == "file":
        return Location(LocationKind.FOLDER, str(Path(f"/{rest.lstrip('/')}")))
    if not scheme.isascii() or not scheme.replace("+", "").replace("-", "").isalnum():
        raise BlobError(f"{what}: what is given is no folder here, and no URL")
    return Location(LocationKind.REMOTE, text)
