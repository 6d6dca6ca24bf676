"""Places as an operator writes them: folders, servers and buckets, one or several."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from urllib.parse import urlsplit

from ledger.protocol.errors import BlobError

MOST_PLACES = 8
_LONGEST = 2_000


class PlaceKind(Enum):
    """What is asked for bytes at a place."""

    FOLDER = "folder"
    SERVER = "server"
    REMOTE = "remote"


@dataclass(frozen=True, slots=True)
class Place:
    """One place.

    Attributes:
        kind: what answers there.
        text: a folder's path, or a URL, which may hold a secret.
    """

    kind: PlaceKind
    text: str

    @property
    def shown(self) -> str:
        """The place without user, password, path and query, since any of them may be a key."""
        if self.kind is PlaceKind.FOLDER:
            return self.text
        parts = urlsplit(self.text)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def places_of(what: str, text: str) -> tuple[Place, ...]:
    """Return the places that a setting names.

    Args:
        what: is looked for there, for an error.
        text: folders and URLs, separated by commas.

    Raises:
        BlobError: it names none, too many, or what is neither a folder's path nor a URL.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(parts) or len(parts) > MOST_PLACES:
        raise BlobError(
            f"{what}: 1 to {MOST_PLACES} folders or URLs are named, separated by commas"
        )
    return tuple(_place(what, part) for part in parts)


def _place(what: str, text: str) -> Place:
    if "\0" in text or len(text) > _LONGEST:
        raise BlobError(f"{what}: a folder or URL has no null and at most {_LONGEST} characters")
    scheme, mark, rest = text.partition("://")
    scheme = scheme.lower()
    if not mark:
        # A mistyped URL may hold a key.
        if text[:4].lower() == "http" or "@" in text:
            raise BlobError(f"{what}: what is given is no folder here, and no http or https URL")
        return Place(PlaceKind.FOLDER, text)
    if scheme in {"http", "https"}:
        return Place(PlaceKind.SERVER, text)
    if scheme == "file":
        return Place(PlaceKind.FOLDER, str(Path(f"/{rest.lstrip('/')}")))
    if not scheme.isascii() or not scheme.replace("+", "").replace("-", "").isalnum():
        raise BlobError(f"{what}: what is given is no folder here, and no URL")
    return Place(PlaceKind.REMOTE, text)
