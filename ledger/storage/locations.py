"""Storage locations as an operator writes them: folders, servers and buckets, one or several."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from urllib.parse import urlsplit

from ledger.protocol.errors import BlobError

MAX_LOCATIONS = 8
_MAX_CHARACTERS = 2_000


class LocationKind(Enum):
    """The adapter for a location."""

    FOLDER = "folder"
    SERVER = "server"
    REMOTE = "remote"


@dataclass(frozen=True, slots=True)
class Location:
    """One location.

    Attributes:
        text: a folder's path, or a URL, which may hold a secret.
    """

    kind: LocationKind
    text: str

    @property
    def shown(self) -> str:
        """The location without user, password, path and query, any of which may be a key."""
        if self.kind is LocationKind.FOLDER:
            return self.text
        parts = urlsplit(self.text)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def parse_locations(option: str, text: str) -> tuple[Location, ...]:
    """Return the locations that a setting names."""
    parts = [part.strip() for part in text.split(",")]
    if not all(parts) or len(parts) > MAX_LOCATIONS:
        raise BlobError(f"{option}: give 1 to {MAX_LOCATIONS} folders or URLs, separated by commas")
    return tuple(_parse(option, part) for part in parts)


def _parse(option: str, text: str) -> Location:
    if "\0" in text or len(text) > _MAX_CHARACTERS:
        raise BlobError(
            f"{option}: a folder or URL has no null and at most {_MAX_CHARACTERS} characters"
        )
    scheme, separator, rest = text.partition("://")
    scheme = scheme.lower()
    if not separator:
        # A mistyped URL may hold a key, and is not repeated.
        if text[:4].lower() == "http" or "@" in text:
            raise BlobError(f"{option}: the location is no folder here, and no http or https URL")
        return Location(LocationKind.FOLDER, text)
    if scheme in {"http", "https"}:
        return Location(LocationKind.SERVER, text)
    if scheme == "file":
        return Location(LocationKind.FOLDER, str(Path(f"/{rest.lstrip('/')}")))
    if not scheme.isascii() or not scheme.replace("+", "").replace("-", "").isalnum():
        raise BlobError(f"{option}: the location is no folder here, and no URL")
    return Location(LocationKind.REMOTE, text)
